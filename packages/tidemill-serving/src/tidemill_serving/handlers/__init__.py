"""Run an endpoint's user code in worker processes, so that it can neither stall nor crash the model server.

`HandlerPool` is the server's side; it starts the processes, which run `worker`. The two exchange the frames of `wire`
over socket pairs.
"""
