-- A database as the release before alembic wrote it: schema version 1, with a record, an object, an upload and its part.
BEGIN TRANSACTION;
CREATE TABLE buckets (
	name TEXT NOT NULL,
	created_ms BIGINT NOT NULL,
	PRIMARY KEY (name)
);
INSERT INTO "buckets" VALUES('data',1700000000000);
CREATE TABLE meta (
	"key" TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema_version','1');
INSERT INTO "meta" VALUES('secret.page-tokens','5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4');
CREATE TABLE objects (
	bucket TEXT NOT NULL,
	"key" BLOB NOT NULL,
	content_id TEXT NOT NULL,
	size_bytes BIGINT NOT NULL,
	etag TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	modified_ms BIGINT NOT NULL,
	document TEXT NOT NULL,
	checksum BLOB NOT NULL,
	PRIMARY KEY (bucket, "key")
)
 WITHOUT ROWID
;
INSERT INTO "objects" VALUES('data',X'747261696E2FC3A42E637376','00000000000000000000000000000000',3,'900150983cd24fb0d6963f7d28e17f72','ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',1700000000000,'{"content_type":"binary/octet-stream","metadata":{"by":"ü"},"headers":{},"checksums":{},"checksum_type":"FULL_OBJECT","tags":{},"part_sizes":[]}',X'8F5E4467F5DD9A8B3BA1E857F3218B46');
CREATE TABLE parts (
	upload_id TEXT NOT NULL,
	part_number INTEGER NOT NULL,
	content_id TEXT NOT NULL,
	size_bytes BIGINT NOT NULL,
	etag TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	modified_ms BIGINT NOT NULL,
	document TEXT NOT NULL,
	checksum BLOB NOT NULL,
	PRIMARY KEY (upload_id, part_number)
)
 WITHOUT ROWID
;
INSERT INTO "parts" VALUES('u1',1,'11111111111111111111111111111111',3,'900150983cd24fb0d6963f7d28e17f72','ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',1700000000000,'{"checksums":{}}',X'931C9B6BAD20F4B6C2D40A67C38B0152');
CREATE TABLE records (
	kind TEXT NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,
	created_ms BIGINT NOT NULL,
	modified_ms BIGINT NOT NULL,
	document TEXT NOT NULL,
	checksum BLOB NOT NULL,
	PRIMARY KEY (kind, name)
);
INSERT INTO "records" VALUES('model','digits','',1700000000000,1700000000000,'{"ModelName":"digits","text":"\u00fc"}',X'E044D5C01C0CB823');
CREATE TABLE uploads (
	bucket TEXT NOT NULL,
	"key" BLOB NOT NULL,
	upload_id TEXT NOT NULL,
	initiated_ms BIGINT NOT NULL,
	completed_ms BIGINT,
	document TEXT NOT NULL,
	checksum BLOB NOT NULL,
	PRIMARY KEY (bucket, "key", upload_id)
)
 WITHOUT ROWID
;
INSERT INTO "uploads" VALUES('data',X'626967','u1',1700000000000,NULL,'{"attributes":{"content_type":"binary/octet-stream","metadata":{},"headers":{},"tags":{},"checksum_type":"FULL_OBJECT"},"algorithm":"","outcome":{}}',X'BF6708FE3EEB7106FE2D1A8B80611DDB');
CREATE INDEX records_by_created ON records (kind, created_ms, name, status, modified_ms);
CREATE INDEX records_by_status ON records (kind, status, created_ms, name, modified_ms);
CREATE INDEX records_by_modified ON records (kind, modified_ms, name, status, created_ms);
CREATE INDEX objects_by_content ON objects (content_id);
CREATE INDEX parts_by_content ON parts (content_id);
COMMIT;
