"""Traces in MLflow's store: all of them, or an error.

MLflow's own tracing hands each span to a queue, which drops what it cannot hold, and sends it to the one address that
is set for the whole process. Here finished traces go to one client's store, many in a call.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.entities import Span as Stored
    from mlflow.tracking import MlflowClient
    from opentelemetry.trace import SpanContext


APART = 1000  # ns between the starts of neighbours that take no time, so that they keep their order


@dataclass(frozen=True)
class Span:
    """A step of a trace. kind: MLflow's type of it, such as RETRIEVER. inputs, outputs, attributes: plain JSON.

    ms: how long it took; at least as long as its parts, which follow one another.
    """

    name: str
    kind: str
    inputs: Any
    outputs: Any
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ms: float = 0.0
    parts: tuple[Span, ...] = ()

    @property
    def ns(self) -> int:
        return max(round(1e6 * self.ms), sum(part.ns + APART for part in self.parts))


@dataclass(frozen=True)
class Trace:
    """What happened to one query. tags: by which traces are searched."""

    root: Span
    tags: Mapping[str, str]


def write(client: MlflowClient, run_id: str, experiment_id: str, traces: Sequence[Trace]) -> None:
    """Store at most 100 traces and link them to a run. Raises MlflowException if they are not all there afterwards."""
    from mlflow.tracing.client import TracingClient

    stored = [_stored(trace) for trace in traces]
    TracingClient(client.tracking_uri).log_spans(experiment_id, [span for spans in stored for span in spans])
    client.link_traces_to_run([spans[0].trace_id for spans in stored], run_id)


def _stored(trace: Trace) -> list[Stored]:
    """A trace's spans as MLflow's, the root first, which carries the tags."""
    from mlflow.tracing.constant import SpanAttributeKey, TraceTagKey

    tags = {**trace.tags, TraceTagKey.TRACE_NAME: trace.root.name}
    marks = {f"{SpanAttributeKey.TRACE_TAG_PREFIX}{name}": value for name, value in tags.items()}
    return list(_flat(trace.root, marks, time.time_ns(), _context(secrets.randbits(128)), None))


def _flat(
    span: Span, marks: Mapping[str, str], start: int, context: SpanContext, parent: SpanContext | None
) -> Iterator[Stored]:
    """A span and those within it. marks: further attributes of this one. start: ns since 1970."""
    from mlflow.entities import Span as Stored
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
        **marks,
    }
    yield Stored(
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
    for part in span.parts:
        yield from _flat(part, {}, start, _context(context.trace_id), context)
        start += part.ns + APART


def _context(trace_id: int) -> SpanContext:
    """A new span of a trace. Ids do not come from `random`: with a seed, a second run would overwrite the first's."""
    from opentelemetry.trace import SpanContext

    return SpanContext(trace_id, secrets.randbits(64), is_remote=False)
