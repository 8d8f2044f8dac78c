"""The service for tests, with the real application."""

from tidemill.core.names import default_bucket
from tidemill.testing import Service


def test_stored_records_survive_kill_nine() -> None:
    with Service() as service:
        s3 = service.client("s3")
        s3.put_object(Bucket=default_bucket(), Key="data/one", Body=b"kept")
        service.kill()
        service.start()
        assert s3.get_object(Bucket=default_bucket(), Key="data/one")["Body"].read() == b"kept"
        assert service.client("sagemaker").list_training_jobs()["TrainingJobSummaries"] == []
