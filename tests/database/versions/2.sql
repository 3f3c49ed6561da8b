-- A tuning database as version 2 of the schema had it, with a row or more in every table.
CREATE TABLE meta (
  name VARCHAR(64) NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (name)
);
CREATE TABLE targets (
  "key" VARCHAR(64) NOT NULL,
  json TEXT NOT NULL,
  PRIMARY KEY ("key")
);
CREATE TABLE workloads (
  "key" VARCHAR(64) NOT NULL,
  text TEXT NOT NULL,
  kind VARCHAR(32) NOT NULL,
  flops BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY ("key")
);
CREATE TABLE jobs (
  id VARCHAR(32) NOT NULL,
  fingerprint VARCHAR(64) NOT NULL,
  model TEXT NOT NULL,
  target_key VARCHAR(64) NOT NULL,
  options TEXT NOT NULL,
  state VARCHAR(16) NOT NULL,
  owner VARCHAR(128) NOT NULL,
  elapsed_s FLOAT NOT NULL,
  created FLOAT NOT NULL,
  updated FLOAT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(target_key) REFERENCES targets ("key")
);
CREATE INDEX ix_jobs_fingerprint ON jobs (fingerprint);
CREATE TABLE spaces (
  "key" VARCHAR(64) NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  json TEXT NOT NULL,
  PRIMARY KEY ("key"),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key")
);
CREATE TABLE contests (
  id INTEGER NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  target_key VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  "key" VARCHAR(64) NOT NULL,
  latency_min_ns FLOAT,
  latency_median_ns FLOAT,
  latency_spread_ns FLOAT,
  n INTEGER NOT NULL,
  error FLOAT,
  message TEXT NOT NULL,
  job VARCHAR(32),
  created FLOAT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT one_entry_each UNIQUE (workload_key, target_key, name, created),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key"),
  FOREIGN KEY(target_key) REFERENCES targets ("key"),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE TABLE runs (
  id INTEGER NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  target_key VARCHAR(64) NOT NULL,
  space_key VARCHAR(64) NOT NULL,
  trace_key VARCHAR(64) NOT NULL,
  trace_json TEXT NOT NULL,
  config_json TEXT NOT NULL,
  outcome VARCHAR(16) NOT NULL,
  latency_min_ns FLOAT,
  latency_median_ns FLOAT,
  latency_spread_ns FLOAT,
  n INTEGER NOT NULL,
  error FLOAT,
  message TEXT NOT NULL,
  origin VARCHAR(16) NOT NULL,
  host VARCHAR(128) NOT NULL,
  versions TEXT NOT NULL,
  seed INTEGER NOT NULL,
  job VARCHAR(32),
  created FLOAT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT one_run_each UNIQUE (workload_key, target_key, space_key, trace_key),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key"),
  FOREIGN KEY(target_key) REFERENCES targets ("key"),
  FOREIGN KEY(space_key) REFERENCES spaces ("key"),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE INDEX fastest ON runs (workload_key, target_key, space_key, outcome, latency_min_ns);
CREATE INDEX of_job ON runs (job);
CREATE TABLE confirmations (
  id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  job VARCHAR(32),
  latency_min_ns FLOAT NOT NULL,
  latency_median_ns FLOAT NOT NULL,
  latency_spread_ns FLOAT NOT NULL,
  n INTEGER NOT NULL,
  created FLOAT NOT NULL,
  PRIMARY KEY (id),
  FOREIGN KEY(run_id) REFERENCES runs (id),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE INDEX ix_confirmations_run_id ON confirmations (run_id);
INSERT INTO meta (name, value) VALUES ('schema_version', '2');
INSERT INTO targets (key, json) VALUES ('2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', '{"arch":"x86_64","cores":1,"cpu":"x86-64-v3","device":"generic","features":["avx","avx2","f16c","fma","sse2","sse4.2"],"l1_bytes":32768,"l2_bytes":524288,"l3_bytes":8388608,"threads":2,"vector_bits":256}');
INSERT INTO workloads (key, text, kind, flops, bytes) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', 'text', 'contraction', 10, 20);
INSERT INTO jobs (id, fingerprint, model, target_key, options, state, owner, elapsed_s, created, updated) VALUES ('j1', 'f', 'net.onnx', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', '{}', 'done', 'host:1', 2.5, 1.0, 2.0);
INSERT INTO spaces (key, workload_key, json) VALUES ('ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '{}');
INSERT INTO contests (workload_key, target_key, name, key, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'direct', 'k1', 4.5, 5.0, 1.0, 9, NULL, '', 'j1', 2.0);
INSERT INTO contests (workload_key, target_key, name, key, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'winograd', 'k2', 2.7, 3.0, 1.0, 9, 1e-06, '', 'j1', 2.0);
INSERT INTO contests (workload_key, target_key, name, key, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'bad', 'k3', NULL, NULL, NULL, 0, NULL, 'wrong', 'j1', 2.0);
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, origin, host, versions, seed, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'default', '[]', '{"tile": 4}', 'ok', 90.0, 100.0, 1.0, 9, 1e-06, '', 'default', 'host', '{}', 3, 'j1', 1.0);
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, origin, host, versions, seed, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'fast', '[]', '{"tile": 4}', 'ok', 72.0, 80.0, 1.0, 9, 1e-06, '', 'search', 'host', '{}', 3, 'j1', 1.0);
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, message, origin, host, versions, seed, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'bad', '[]', '{"tile": 4}', 'timeout', NULL, NULL, NULL, 0, NULL, 'too slow', 'search', 'host', '{}', 3, 'j1', 1.0);
