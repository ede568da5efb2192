"""Store traces in MLflow's tracking store completely, or raise an error.

MLflow's own tracing drops spans when its queue is full, and sends all spans of a process to one address. This module
sends finished traces to the store of a given client, many in one call.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.entities import Span as MlflowSpan
    from mlflow.tracking import MlflowClient
    from opentelemetry.trace import SpanContext


GAP = 1000  # ns between consecutive spans, to keep spans without duration in order


@dataclass(frozen=True)
class TraceSpan:
    """A step of a trace.

    kind: MLflow's span type, such as RETRIEVER. inputs, outputs, attributes: JSON values. ms: duration in milliseconds.
    children: the steps inside this step, in order.
    """

    name: str
    kind: str
    inputs: Any
    outputs: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ms: float = 0.0
    children: tuple[TraceSpan, ...] = ()

    @property
    def ns(self) -> int:
        """Return the duration in nanoseconds, which is at least the total duration of the children."""
        return max(round(1e6 * self.ms), sum(child.ns + GAP for child in self.children))


@dataclass(frozen=True)
class Trace:
    """The steps of one query. tags: the tags by which MLflow finds traces."""

    root: TraceSpan
    tags: Mapping[str, str]


def write_spans(client: MlflowClient, run_id: str, experiment_id: str, traces: Sequence[Trace]) -> None:
    """Store at most 100 traces, and link them to a run. Raise MlflowException unless all traces are stored."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracing.client import TracingClient

    converted = [_stored(trace) for trace in traces]
    try:
        TracingClient(client.tracking_uri).log_spans(experiment_id, [span for spans in converted for span in spans])
    except NotImplementedError as error:  # the server is too old, or does not report its version
        raise MlflowException(f"traces cannot be stored: {error}") from error
    client.link_traces_to_run([spans[0].trace_id for spans in converted], run_id)


def _stored(trace: Trace) -> list[MlflowSpan]:
    """Return a trace as MLflow's spans, with the root span first."""
    from mlflow.tracing.constant import SpanAttributeKey, TraceTagKey

    tags = {**trace.tags, TraceTagKey.TRACE_NAME: trace.root.name}
    tag_attributes = {f"{SpanAttributeKey.TRACE_TAG_PREFIX}{name}": value for name, value in tags.items()}
    return list(_flat(trace.root, tag_attributes, time.time_ns(), _context(secrets.randbits(128)), None))


def _flat(
    span: TraceSpan, extra: Mapping[str, str], start: int, context: SpanContext, parent: SpanContext | None
) -> Iterator[MlflowSpan]:
    """Yield a span and the spans inside it. extra: attributes to add to `span`. start: nanoseconds since 1970."""
    from mlflow.entities import Span as MlflowSpan
    from mlflow.tracing.constant import SpanAttributeKey
    from mlflow.tracing.utils import generate_mlflow_trace_id_from_otel_trace_id
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Status, StatusCode

    attributes = {
        SpanAttributeKey.REQUEST_ID: generate_mlflow_trace_id_from_otel_trace_id(context.trace_id),
        SpanAttributeKey.SPAN_TYPE: span.kind,
        SpanAttributeKey.INPUTS: span.inputs,
        SpanAttributeKey.OUTPUTS: span.outputs,
        **span.attributes,
        **extra,
    }
    yield MlflowSpan(
        ReadableSpan(
            span.name,
            context,
            parent,
            Resource.get_empty(),
            {name: json.dumps(value, ensure_ascii=False) for name, value in attributes.items()},
            status=Status(StatusCode.OK),
            start_time=start,
            end_time=start + span.ns,
        )
    )
    for child in span.children:
        yield from _flat(child, {}, start, _context(context.trace_id), context)
        start += child.ns + GAP


def _context(trace_id: int) -> SpanContext:
    """Return the context of a new span. Ids from `random` would repeat in runs with the same seed."""
    from opentelemetry.trace import SpanContext

    return SpanContext(trace_id, secrets.randbits(64), is_remote=False)
