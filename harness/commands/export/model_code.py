"""The code that MLflow copies into a model and runs to serve the model. It calls this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from mlflow.pyfunc import PythonModel, PythonModelContext
from pandas import DataFrame

from harness.commands.export.model import answer, load_model
from harness.errors import BadInput


class RetrievalModel(PythonModel):
    """Answers queries or conversations with ranked documents and the gate's decision; see `export.model.answer`."""

    def load_context(self, context: PythonModelContext) -> None:
        self._searcher = load_model(Path(context.artifacts["package"]))
        self._searcher.warm()

    def predict(
        self, context: PythonModelContext, model_input: DataFrame, params: dict[str, Any] | None = None
    ) -> DataFrame:
        """Answer requests. Status 400: an invalid request. Status 503: the language model of the gate is down."""
        try:
            return answer(self._searcher, model_input)
        except BadInput as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error
        except RuntimeError as error:
            raise MlflowException(str(error), error_code=TEMPORARILY_UNAVAILABLE) from error


set_model(RetrievalModel())
