"""What the estimator uploads before a job is created, and where the job writes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import Arguments
from tidemill.sdk.console import Console
from tidemill.sdk.session import Session
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.upload import LocalData, upload
from tidemill.sdk.variable import is_pipeline_variable


@dataclass(frozen=True)
class Staging:
    """The S3 locations of a job.

    Attributes:
        session: Sends the uploads.
        arguments: The estimator's arguments.
        code: The code of the job.
    """

    session: Session
    arguments: Arguments
    code: SourceCode

    @cached_property
    def output_path(self) -> Any:
        """S3 URI below which jobs write; its bucket is created if missing. It may be a variable of a pipeline."""
        if self.arguments.output_path is None:
            return f"s3://{self.session.default_bucket()}/"
        if is_pipeline_variable(self.arguments.output_path):
            return self.arguments.output_path
        self.session.ensure_bucket(S3Uri.parse(self.arguments.output_path).bucket)
        return self.arguments.output_path

    def upload(self, path: str) -> str:
        """Upload a local file or directory to the default bucket. Return its S3 URI.

        Args:
            path: The path.
        """
        data, bucket = LocalData.read(path), self.session.default_bucket()
        if not self.session.sends:
            return data.uri(bucket)
        return upload(self.session.s3_client, data, bucket=bucket, console=Console())

    def stage_code(self, job_name: str) -> str:
        """Upload the packed code of a job, unless it is on S3 already. Return its S3 URI.

        Args:
            job_name: Name of the job.
        """
        if self.code.remote is not None:
            return self.code.remote
        location, packed = self.arguments.code_location or f"s3://{self._bucket}", self.code.pack()
        prefix = self.session.code_prefix(f"{job_name}/source", packed)
        target = S3Uri.parse(location.rstrip("/")) / prefix / "sourcedir.tar.gz"
        self.session.ensure_bucket(target.bucket)
        if self.session.sends:
            self.session.s3_client.put_object(Bucket=target.bucket, Key=target.key, Body=packed)
        return str(target)

    @property
    def _bucket(self) -> str:
        """Bucket of ``output_path``; the default one if only the execution of a pipeline knows it."""
        if is_pipeline_variable(self.output_path):
            return self.session.default_bucket()
        return S3Uri.parse(self.output_path).bucket

    def model_dir(self, job_name: str) -> Any:
        """Return the script's argument ``--model_dir``; None if the script gets none.

        Args:
            job_name: Name of the job.
        """
        chosen = self.arguments.model_dir
        if chosen is False:
            return None
        if isinstance(chosen, str) or is_pipeline_variable(chosen):
            return chosen
        if self.arguments.mpi:
            return "/opt/ml/model"
        if is_pipeline_variable(self.output_path):
            return f"s3://{self._bucket}/{self.session.job_prefix(job_name)}/model"
        return str(S3Uri.parse(self.output_path.rstrip("/")) / self.session.job_prefix(job_name) / "model")
