"""Run by test_features.py on two ranks: calls of several threads, eager and in graphs, all correct and none stuck."""

import threading

import tensorflow as tf

import horovod.tensorflow as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
CALLS = 300
wrong = []


def eager(name):
    for number in range(CALLS):
        total = hvd.allreduce(tf.fill([number % 7 + 1], float(rank + number)), op=hvd.Sum, name=name)
        if not bool(tf.reduce_all(total == sum(range(size)) + size * number)):
            wrong.append((name, number, total))


def traced(name):
    @tf.function(reduce_retracing=True)
    def sums(value):
        return [hvd.allreduce(value + place, op=hvd.Sum, name=f"{name}.{place}") for place in range(4)]

    for number in range(CALLS // 10):
        for place, total in enumerate(sums(tf.constant(float(rank + number)))):
            if float(total) != sum(range(size)) + size * (number + place):
                wrong.append((name, number, total))


def wait_until_shutdown():
    try:
        hvd.allreduce(tf.ones([1]), name=f"only on rank {rank}")
    except hvd.HorovodInternalError as error:
        print(f"ended by {error}\n", end="", flush=True)  # one write: the ranks share the output


threads = [threading.Thread(target=kind, args=(f"{kind.__name__}{i}",)) for kind in (eager, traced) for i in range(2)]
for thread in threads:
    thread.start()
eager("main")
for thread in threads:
    thread.join()
assert not wrong, wrong[:3]

hvd.barrier()
waiting = threading.Thread(target=wait_until_shutdown)
waiting.start()
waiting.join(0.3)  # by then the thread does the work of its rank
hvd.shutdown()
waiting.join()
print("done\n", end="", flush=True)
