BEGIN TRANSACTION;
CREATE TABLE accuracy_runs (
	id INTEGER NOT NULL, 
	target VARCHAR(100) NOT NULL, 
	host VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	summary JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_accuracy_runs PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0007');
CREATE TABLE audit_events (
	id INTEGER NOT NULL, 
	actor VARCHAR(100) NOT NULL, 
	action VARCHAR(50) NOT NULL, 
	subject VARCHAR(200) NOT NULL, 
	request_id VARCHAR(64) NOT NULL, 
	details JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_audit_events PRIMARY KEY (id)
);
CREATE TABLE blob_links (
	parent VARCHAR(64) NOT NULL, 
	child VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_blob_links PRIMARY KEY (parent, child), 
	CONSTRAINT fk_blob_links_child_blobs FOREIGN KEY(child) REFERENCES blobs (digest), 
	CONSTRAINT fk_blob_links_parent_blobs FOREIGN KEY(parent) REFERENCES blobs (digest)
);
INSERT INTO "blob_links" VALUES('c5d5a2c5608c53f9df6f0932cdfbbe618c912aceaf4de9f74858db4701e32c1c','6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c');
INSERT INTO "blob_links" VALUES('bb4e3ea0a709da743211437860d2584aeca8209dbc27077fb80c79b0da16aba6','6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c');
CREATE TABLE blobs (
	digest VARCHAR(64) NOT NULL, 
	media_type VARCHAR(100) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	public BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_blobs PRIMARY KEY (digest)
);
INSERT INTO "blobs" VALUES('9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4','application/onnx',5,0,'2026-11-29 12:00:00.000000',X'6D6F64656C');
INSERT INTO "blobs" VALUES('c5d5a2c5608c53f9df6f0932cdfbbe618c912aceaf4de9f74858db4701e32c1c','application/vnd.fuseplan.plan+json',19,1,'2026-11-29 12:00:00.000000',X'7B22706C616E223A22616E616C79746963227D');
INSERT INTO "blobs" VALUES('6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c','text/plain',6,1,'2026-11-29 12:00:00.000000',X'6B65726E656C');
INSERT INTO "blobs" VALUES('bb4e3ea0a709da743211437860d2584aeca8209dbc27077fb80c79b0da16aba6','application/vnd.fuseplan.plan+json',19,1,'2026-11-29 12:00:00.000000',X'7B22706C616E223A226D65617375726564227D');
CREATE TABLE calibrations (
	id INTEGER NOT NULL, 
	target VARCHAR(100) NOT NULL, 
	host VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	numbers JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_calibrations PRIMARY KEY (id)
);
CREATE TABLE devices (
	host VARCHAR(200) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	target VARCHAR(100) NOT NULL, 
	queues JSON NOT NULL, 
	facts JSON NOT NULL, 
	seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_devices PRIMARY KEY (host, name)
);
CREATE TABLE graphs (
	hash VARCHAR(64) NOT NULL, 
	title VARCHAR(200) NOT NULL, 
	nodes INTEGER NOT NULL, 
	tensors INTEGER NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_graphs PRIMARY KEY (hash)
);
INSERT INTO "graphs" VALUES('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','model',1,2,'2026-11-29 12:00:00.000000');
CREATE TABLE heartbeats (
	worker VARCHAR(300) NOT NULL, 
	host VARCHAR(200) NOT NULL, 
	pid INTEGER NOT NULL, 
	device VARCHAR(100) NOT NULL, 
	queue VARCHAR(100) NOT NULL, 
	job VARCHAR(40), 
	started_at DATETIME NOT NULL, 
	seen_at DATETIME NOT NULL, 
	CONSTRAINT pk_heartbeats PRIMARY KEY (worker)
);
CREATE TABLE idempotency_keys (
	key_hash VARCHAR(64) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	plan_key VARCHAR(64) NOT NULL, 
	job VARCHAR(40), 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (key_hash)
);
CREATE TABLE job_events (
	job VARCHAR(40) NOT NULL, 
	number INTEGER NOT NULL, 
	type VARCHAR(20) NOT NULL, 
	data JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_job_events PRIMARY KEY (job, number), 
	CONSTRAINT fk_job_events_job_jobs FOREIGN KEY(job) REFERENCES jobs (id)
);
INSERT INTO "job_events" VALUES('job-1',1,'state','{"state": "queued", "plan_key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "trials": 0, "best_seconds": null, "gap": null, "error": null}','2026-11-29 12:00:00.000000');
INSERT INTO "job_events" VALUES('job-1',2,'state','{"state": "running", "plan_key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "trials": 0, "best_seconds": null, "gap": null, "error": null}','2026-11-29 12:00:00.000000');
INSERT INTO "job_events" VALUES('job-1',3,'state','{"state": "succeeded", "plan_key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "trials": 0, "best_seconds": null, "gap": null, "error": null}','2026-11-29 12:00:00.000000');
INSERT INTO "job_events" VALUES('job-1',4,'done','{"state": "succeeded", "plan_key": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "trials": 0, "best_seconds": null, "gap": null, "error": null}','2026-11-29 12:00:00.000000');
CREATE TABLE jobs (
	id VARCHAR(40) NOT NULL, 
	plan_key VARCHAR(64) NOT NULL, 
	graph_hash VARCHAR(64) NOT NULL, 
	target VARCHAR(100) NOT NULL, 
	queue VARCHAR(100) NOT NULL, 
	title VARCHAR(200) NOT NULL, 
	input_digest VARCHAR(64) NOT NULL, 
	input_form VARCHAR(10) NOT NULL, 
	options JSON NOT NULL, 
	names JSON NOT NULL, 
	budget_seconds DOUBLE NOT NULL, 
	budget_trials INTEGER NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	trials INTEGER NOT NULL, 
	best_seconds DOUBLE, 
	gap DOUBLE, 
	remaining_seconds DOUBLE, 
	kernels INTEGER, 
	batches INTEGER NOT NULL, 
	cancel_requested BOOLEAN NOT NULL, 
	error JSON, 
	created_at DATETIME NOT NULL, 
	started_at DATETIME, 
	finished_at DATETIME, priority INTEGER DEFAULT '100' NOT NULL, request_id VARCHAR(64) DEFAULT '' NOT NULL, cache VARCHAR(10) DEFAULT 'warm' NOT NULL, partitions INTEGER DEFAULT '3' NOT NULL, attempts INTEGER DEFAULT '0' NOT NULL, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_graph_hash_graphs FOREIGN KEY(graph_hash) REFERENCES graphs (hash), 
	CONSTRAINT fk_jobs_input_digest_blobs FOREIGN KEY(input_digest) REFERENCES blobs (digest), 
	CONSTRAINT fk_jobs_plan_key_plans FOREIGN KEY(plan_key) REFERENCES plans ("key")
);
INSERT INTO "jobs" VALUES('job-1','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','cpu','tune.cpu','model','9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4','onnx','{}','{"n0": ["relu"]}',10.0,100,'succeeded',0,NULL,NULL,0.0,NULL,0,0,NULL,'2026-11-29 12:00:00.000000','2026-11-29 12:00:00.000000','2026-11-29 12:00:00.000000',100,'','warm',3,0);
CREATE TABLE kernels (
	fingerprint VARCHAR(100) NOT NULL, 
	family VARCHAR(30) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_kernels PRIMARY KEY (fingerprint)
);
CREATE TABLE measurements (
	id INTEGER NOT NULL, 
	job VARCHAR(40), 
	subject VARCHAR(200) NOT NULL, 
	kernel VARCHAR(100), 
	device VARCHAR(100) NOT NULL, 
	schedule JSON NOT NULL, 
	seconds DOUBLE, 
	low_seconds DOUBLE, 
	high_seconds DOUBLE, 
	samples JSON NOT NULL, 
	failure VARCHAR(20) NOT NULL, 
	result JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_measurements_job_jobs FOREIGN KEY(job) REFERENCES jobs (id), 
	CONSTRAINT fk_measurements_kernel_kernels FOREIGN KEY(kernel) REFERENCES kernels (fingerprint)
);
CREATE TABLE plan_pins (
	"key" VARCHAR(64) NOT NULL, 
	actor VARCHAR(100) NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_plan_pins PRIMARY KEY ("key"), 
	CONSTRAINT fk_plan_pins_key_plans FOREIGN KEY("key") REFERENCES plans ("key")
);
INSERT INTO "plan_pins" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','local','2026-11-29 12:00:00.000000');
CREATE TABLE plan_pointers (
	"key" VARCHAR(64) NOT NULL, 
	evidence VARCHAR(20) NOT NULL, 
	revision_id INTEGER NOT NULL, copy_of INTEGER, digest VARCHAR(64), objective_seconds DOUBLE, kernels INTEGER, 
	CONSTRAINT pk_plan_pointers PRIMARY KEY ("key", evidence), 
	CONSTRAINT fk_plan_pointers_key_plans FOREIGN KEY("key") REFERENCES plans ("key"), 
	CONSTRAINT fk_plan_pointers_revision_id_plan_revisions FOREIGN KEY(revision_id) REFERENCES plan_revisions (id)
);
INSERT INTO "plan_pointers" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','analytic',1,1,'c5d5a2c5608c53f9df6f0932cdfbbe618c912aceaf4de9f74858db4701e32c1c',1.0,1);
INSERT INTO "plan_pointers" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','measured',2,2,'bb4e3ea0a709da743211437860d2584aeca8209dbc27077fb80c79b0da16aba6',1.0,1);
CREATE TABLE plan_revisions (
	id INTEGER NOT NULL, 
	"key" VARCHAR(64) NOT NULL, 
	revision INTEGER NOT NULL, 
	evidence VARCHAR(20) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	seconds DOUBLE NOT NULL, 
	objective_seconds DOUBLE NOT NULL, 
	bound_seconds DOUBLE NOT NULL, 
	kernels INTEGER NOT NULL, 
	job VARCHAR(40), 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_plan_revisions PRIMARY KEY (id), 
	CONSTRAINT fk_plan_revisions_digest_blobs FOREIGN KEY(digest) REFERENCES blobs (digest), 
	CONSTRAINT fk_plan_revisions_key_plans FOREIGN KEY("key") REFERENCES plans ("key")
);
INSERT INTO "plan_revisions" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1,'analytic','c5d5a2c5608c53f9df6f0932cdfbbe618c912aceaf4de9f74858db4701e32c1c',1.0,1.0,0.5,1,NULL,'2026-11-29 12:00:00.000000');
INSERT INTO "plan_revisions" VALUES(2,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',2,'measured','bb4e3ea0a709da743211437860d2584aeca8209dbc27077fb80c79b0da16aba6',1.0,1.0,0.5,1,NULL,'2026-11-29 12:00:00.000000');
CREATE TABLE plans (
	"key" VARCHAR(64) NOT NULL, 
	graph_hash VARCHAR(64) NOT NULL, 
	target VARCHAR(100) NOT NULL, 
	parts JSON NOT NULL, 
	options JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	CONSTRAINT pk_plans PRIMARY KEY ("key"), 
	CONSTRAINT fk_plans_graph_hash_graphs FOREIGN KEY(graph_hash) REFERENCES graphs (hash)
);
INSERT INTO "plans" VALUES('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','cpu','{"graph": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}','{"legality": "full"}','2026-11-29 12:00:00.000000');
CREATE TABLE tokens (
	id VARCHAR(40) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	scopes JSON NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	revoked_at DATETIME, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_hash UNIQUE (hash), 
	CONSTRAINT uq_tokens_name UNIQUE (name)
);
CREATE INDEX ix_calibrations_target ON calibrations (target);
CREATE INDEX ix_devices_target ON devices (target);
CREATE INDEX ix_plans_graph_hash ON plans (graph_hash);
CREATE INDEX ix_jobs_created_at_id ON jobs (created_at, id);
CREATE INDEX ix_jobs_plan_key ON jobs (plan_key);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE UNIQUE INDEX uq_jobs_active_plan_key ON jobs (plan_key) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX ix_plan_revisions_key_revision ON plan_revisions ("key", revision);
CREATE INDEX ix_measurements_device_subject ON measurements (device, subject);
CREATE INDEX ix_measurements_job ON measurements (job);
CREATE INDEX ix_measurements_kernel ON measurements (kernel);
CREATE INDEX ix_idempotency_keys_created_at ON idempotency_keys (created_at);
CREATE INDEX ix_accuracy_runs_target ON accuracy_runs (target);
COMMIT;
