"""What Horovod says of this process, as the first script of a test suite of images prints it."""

import json

import horovod.tensorflow as hvd

hvd.init()
print("BASIC " + json.dumps([hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]), flush=True)
