"""FastFile mode for objects of a remote S3: the job sees files at once, and their bytes are fetched when it reads them.

A process per channel serves a FUSE file system (`filesystem`), which is mounted in the namespaces of the job only
(`tidemill.sandbox.lay_over`). The shim starts and watches these processes (`servers`). A process reads the listing of
its channel (`tree`), fetches ranges of objects and reads ahead (`reader`), and keeps fetched blocks on the disk
(`cache`).
"""
