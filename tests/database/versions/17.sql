-- A tuning database as version 17 of the schema had it, with a row or more in every table.
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
  status TEXT DEFAULT '' NOT NULL,
  report TEXT DEFAULT '' NOT NULL,
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
CREATE INDEX ix_spaces_workload_key ON spaces (workload_key);
CREATE TABLE layers (
  job VARCHAR(32) NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  names TEXT NOT NULL,
  PRIMARY KEY (job, workload_key),
  FOREIGN KEY(job) REFERENCES jobs (id),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key")
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
  memory_bytes BIGINT,
  artifact_bytes BIGINT,
  scratch_bytes BIGINT,
  message TEXT NOT NULL,
  origin VARCHAR(16) NOT NULL,
  host VARCHAR(128) NOT NULL,
  versions TEXT NOT NULL,
  seed BIGINT NOT NULL,
  job VARCHAR(32),
  created FLOAT NOT NULL,
  code VARCHAR(64) NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT one_run_each UNIQUE (workload_key, target_key, space_key, trace_key, code),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key"),
  FOREIGN KEY(target_key) REFERENCES targets ("key"),
  FOREIGN KEY(space_key) REFERENCES spaces ("key"),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE INDEX fastest ON runs (workload_key, target_key, space_key, outcome, latency_min_ns);
CREATE INDEX ended ON runs (job, outcome);
CREATE INDEX defaults ON runs (workload_key, target_key, space_key, outcome, latency_min_ns) WHERE origin = 'default';
CREATE TABLE comparisons (
  id INTEGER NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  target_key VARCHAR(64) NOT NULL,
  site VARCHAR(16) NOT NULL,
  name VARCHAR(64) NOT NULL,
  "key" VARCHAR(64) NOT NULL,
  run_id INTEGER,
  won BOOLEAN NOT NULL,
  latency_min_ns FLOAT,
  latency_median_ns FLOAT,
  latency_spread_ns FLOAT,
  n INTEGER NOT NULL,
  ratio FLOAT,
  ratio_low FLOAT,
  ratio_high FLOAT,
  error FLOAT,
  message TEXT NOT NULL,
  detail TEXT DEFAULT '' NOT NULL,
  load FLOAT DEFAULT '0' NOT NULL,
  inside TEXT NOT NULL,
  job VARCHAR(32),
  created FLOAT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT one_row_each UNIQUE (workload_key, target_key, site, name, created),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key"),
  FOREIGN KEY(target_key) REFERENCES targets ("key"),
  FOREIGN KEY(run_id) REFERENCES runs (id),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE INDEX compared ON comparisons (workload_key, target_key, site, "key", won);
CREATE INDEX compared_by ON comparisons (job);
CREATE INDEX ix_comparisons_run_id ON comparisons (run_id);
CREATE TABLE readings (
  id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  workload_key VARCHAR(64) NOT NULL,
  target_key VARCHAR(64) NOT NULL,
  space_key VARCHAR(64) NOT NULL,
  ratio FLOAT NOT NULL,
  rounds INTEGER NOT NULL,
  default_ns FLOAT NOT NULL,
  load FLOAT DEFAULT '0' NOT NULL,
  host VARCHAR(128) DEFAULT '' NOT NULL,
  inside TEXT NOT NULL,
  job VARCHAR(32),
  created FLOAT NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT one_reading_each UNIQUE (run_id, created),
  FOREIGN KEY(run_id) REFERENCES runs (id),
  FOREIGN KEY(workload_key) REFERENCES workloads ("key"),
  FOREIGN KEY(target_key) REFERENCES targets ("key"),
  FOREIGN KEY(space_key) REFERENCES spaces ("key"),
  FOREIGN KEY(job) REFERENCES jobs (id)
);
CREATE INDEX read ON readings (workload_key, target_key, space_key, ratio);
INSERT INTO meta (name, value) VALUES ('schema_version', '17');
INSERT INTO targets (key, json) VALUES ('2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', '{"arch":"x86_64","cores":1,"cpu":"x86-64-v3","device":"generic","features":["avx","avx2","f16c","fma","sse2","sse4.2"],"l1_bytes":32768,"l2_bytes":524288,"l3_bytes":8388608,"threads":2,"vector_bits":256}');
INSERT INTO workloads (key, text, kind, flops, bytes) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', 'text', 'contraction', 10, 20);
INSERT INTO workloads (key, text, kind, flops, bytes) VALUES ('kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk', '', 'model', 0, 0);
INSERT INTO jobs (id, fingerprint, model, target_key, options, state, owner, elapsed_s, created, updated, status, report) VALUES ('j1', 'f', 'net.onnx', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', '{}', 'done', 'host:1', 2.5, 1.0, 2.0, '{"phase": "search"}', '{}');
INSERT INTO spaces (key, workload_key, json) VALUES ('ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '{}');
INSERT INTO layers (job, workload_key, names) VALUES ('j1', 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '["000_conv"]');
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, memory_bytes, artifact_bytes, scratch_bytes, message, origin, host, versions, seed, job, created, code) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'default', '[]', '{"tile": 4}', 'ok', 90.0, 100.0, 1.0, 9, 1e-06, 4096, 9000, 1024, '', 'default', 'host', '{}', 3, 'j1', 1.0, 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd');
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, memory_bytes, artifact_bytes, scratch_bytes, message, origin, host, versions, seed, job, created, code) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'fast', '[]', '{"tile": 4}', 'ok', 72.0, 80.0, 1.0, 9, 1e-06, 4096, 9000, 1024, '', 'search', 'host', '{}', 3, 'j1', 1.0, 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc');
INSERT INTO runs (workload_key, target_key, space_key, trace_key, trace_json, config_json, outcome, latency_min_ns, latency_median_ns, latency_spread_ns, n, error, memory_bytes, artifact_bytes, scratch_bytes, message, origin, host, versions, seed, job, created, code) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 'bad', '[]', '{"tile": 4}', 'timeout', NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 'too slow', 'search', 'host', '{}', 3, 'j1', 1.0, '');
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, inside, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'schedule', 'default', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 1, FALSE, 68.4, 76.0, 1.0, 9, NULL, NULL, NULL, NULL, '', 'net', 'j1', 2.0);
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, inside, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'schedule', 'fast', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 2, TRUE, 63.0, 70.0, 1.0, 9, 0.92, 0.9, 0.94, NULL, '', 'net', 'j1', 2.0);
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, inside, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'option', 'direct', 'k1', NULL, FALSE, 4.5, 5.0, 1.0, 9, NULL, NULL, NULL, NULL, '', 'net', 'j1', 2.0);
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, inside, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'option', 'winograd', 'k2', NULL, TRUE, 2.7, 3.0, 1.0, 9, 0.92, 0.9, 0.94, NULL, '', 'net', 'j1', 2.0);
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, inside, job, created) VALUES ('wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'option', 'bad', 'k3', NULL, FALSE, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 'wrong', 'net', 'j1', 2.0);
INSERT INTO readings (run_id, workload_key, target_key, space_key, ratio, rounds, default_ns, inside, job, created) VALUES (2, 'wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss', 0.9, 3, 100.0, 'net', 'j1', 2.0);
INSERT INTO comparisons (workload_key, target_key, site, name, key, run_id, won, latency_min_ns, latency_median_ns, latency_spread_ns, n, ratio, ratio_low, ratio_high, error, message, detail, inside, job, created) VALUES ('kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk', '2c3cf97c8e6efb68cdcd30cb9d48e41fc94475279b8e23e1dea26527d63025d8', 'devices', 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn', 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', NULL, TRUE, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, '', '{"devices": ["cpu:0", "cpu:1"], "expected_ns": 90.0, "placement": {"*": "cpu:1"}}', 'net', 'j1', 2.0);
