"""The S3 service: its handlers by operation.

Of the settings of buckets, default encryption and policy can be changed. The others (versioning, access control lists,
replication and the like) can only be read: the operations that change them have no handler, so they are unknown.
"""

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.kms_keys import KmsKeys
from tidemill.services.operations import OperationGroups
from tidemill.services.s3.bucket_settings import BucketSettings
from tidemill.services.s3.buckets import BucketOperations
from tidemill.services.s3.copying import CopyOperations
from tidemill.services.s3.handed_files import HandedFiles
from tidemill.services.s3.intention import Encryption
from tidemill.services.s3.listing import ListOperations
from tidemill.services.s3.multipart import MultipartOperations
from tidemill.services.s3.reading import ReadOperations
from tidemill.services.s3.writing import WriteOperations
from tidemill.store.objects.store import ObjectStore


class S3Service(OperationGroups):
    """S3 over an object store.

    Args:
        keys: The KMS keys, to which those are added that requests name.
        rules: Default encryption and policies of buckets.
        region: Region that is reported for all buckets.
        handed_files: Copies of files that clients have handed over. Default: none are.
        records_encryption: As in `Encryption`. Default: true.
    """

    def __init__(
        self,
        objects: ObjectStore,
        keys: KmsKeys,
        rules: BucketRules,
        *,
        region: str,
        handed_files: HandedFiles | None = None,
        records_encryption: bool = True,
    ) -> None:
        encryption = Encryption(keys, rules, recorded=records_encryption)
        handed_files = handed_files or HandedFiles(objects.contents.disk, limit_bytes=0)
        super().__init__(
            BucketOperations(objects, rules, region=region),
            BucketSettings(objects, rules, encryption),
            CopyOperations(objects, encryption),
            ListOperations(objects, handed_files),
            MultipartOperations(objects, encryption),
            ReadOperations(objects),
            WriteOperations(objects, encryption, handed_files),
        )
