-- A store of version 1 in SQLite: 40 records in two epochs, and one table for people of that time.
CREATE TABLE meta (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    store_id  TEXT NOT NULL CHECK (length(store_id) = 32),
    epoch     INTEGER NOT NULL CHECK (epoch >= 0)
) STRICT;
INSERT INTO meta (id, store_id, epoch) VALUES (1, '0123456789abcdef0123456789abcdef', 2);
CREATE TABLE journal (
    seq    INTEGER PRIMARY KEY CHECK (seq > 0),
    at     INTEGER NOT NULL,
    epoch  INTEGER NOT NULL,
    body   TEXT NOT NULL,
    hash   BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE TRIGGER journal_is_not_edited BEFORE UPDATE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER journal_is_not_cut BEFORE DELETE ON journal
    BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TABLE missions (id TEXT PRIMARY KEY, goal TEXT NOT NULL) STRICT;
INSERT INTO missions VALUES ('m1', 'as version 1 had it');
CREATE TABLE projection_watermark (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    seq      INTEGER NOT NULL,
    version  INTEGER NOT NULL
) STRICT;
INSERT INTO projection_watermark (id, seq, version) VALUES (1, 40, 1);
INSERT INTO journal VALUES (1, 1794790151088, 1, '{"type":"team_changed","seats":{"developer":2,"tester":2},"workers_max":4}', x'6630e11e662027ae94bcbc1cbfa0ccbf9e6c3dfe39eb78622ad7c46828bcab92');
INSERT INTO journal VALUES (2, 1794790151094, 1, '{"type":"mission_opened","mission":"m1","request":"demo","goal":"Build a to-do list for the shell","target":"main","base":"7d53a8f793adea624c8c786f16a62d577dc89199","branch":"kapelle/m1","policy":{"flow":["red","green"],"tests":["tests/**"],"checks":[{"name":"test","command":"sh tests/run.sh","timeout_ms":60000}],"attempt_timeout_ms":{},"lease_ttl_ms":300000,"retry":{"backoff_base_ms":200,"backoff_max_ms":60000},"budget":{"mission_usd_max":10000000,"attempt_usd_max":500000},"answers":{"export_format":"csv"},"sandbox":"required"},"by":"ann","at":1794790151094}', x'9362eef5cc7855da81f3c0b0460c6616b8fb92e8d38c6c047584e6b3d63fd194');
INSERT INTO journal VALUES (3, 1794790151094, 1, '{"type":"plan_accepted","mission":"m1","first_task":1,"tasks":[{"id":"1-1","title":"Add items to a list","priority":"HIGH","files":["lib/add.sh","tests/test_add.sh"],"estimated_duration_minutes":5,"validation_criteria":{"criteria":["an added item is the last line of the list"]}},{"id":"1-2","title":"List items with their numbers","priority":"HIGH","files":["lib/list.sh","tests/test_list.sh"],"estimated_duration_minutes":5},{"id":"1-3","title":"Mark an item as done","priority":"MEDIUM","dependencies":["1-1"],"files":["lib/done.sh","tests/test_done.sh"],"estimated_duration_minutes":10},{"id":"2-1","title":"Refuse empty items","priority":"MEDIUM","dependencies":["1-1"],"files":["lib/add.sh","tests/test_empty.sh"],"estimated_duration_minutes":5},{"id":"2-2","title":"Export the list","priority":"MEDIUM","dependencies":["1-2"],"files":["lib/export.sh","tests/test_export.sh"],"estimated_duration_minutes":15},{"id":"3-1","title":"One command for everything","priority":"HIGH","dependencies":["1-2","1-3","2-1","2-2"],"files":["todo","tests/test_todo.sh"],"estimated_duration_minutes":10},{"id":"3-2","title":"Say how it is used","priority":"MEDIUM","dependencies":["3-1"],"files":["todo","tests/test_usage.sh"],"estimated_duration_minutes":5},{"id":"3-3","title":"Describe it in the README","priority":"LOW","dependencies":["3-1"],"files":["README.md","tests/test_readme.sh"],"estimated_duration_minutes":5}]}', x'bb2e590b547fba6b555909b3424f8270857a76b39cb038ecd05cf961a76a9c20');
INSERT INTO journal VALUES (4, 1794790151094, 1, '{"type":"chore_started","mission":"m1","fence":1,"chore":{"chore":"branch","of":"m1"}}', x'9b193a2e61bc4f1fb14be8bd5837895015d2c3c681afa637e5657130d7ba4797');
INSERT INTO journal VALUES (5, 1794790151101, 1, '{"type":"branch_prepared","mission":"m1","fence":1,"tip":"7d53a8f793adea624c8c786f16a62d577dc89199"}', x'bd90c603e5ecd34ed8ac46bd03be6d6eb046af09bf22e61c4c57a3974b69f305');
INSERT INTO journal VALUES (6, 1794790151101, 1, '{"type":"lease_granted","task":1,"fence":2,"agent":"tester-1","phase":"red","base":"7d53a8f793adea624c8c786f16a62d577dc89199","reserved":500000,"granted_at":1794790151101,"expires_at":1794790451101,"deadline":1794790751101}', x'ade2498d6ddeaa509f8a1f3673db572f4443b07d0bb31296ec4e62c720cb6656');
INSERT INTO journal VALUES (7, 1794790151101, 1, '{"type":"lease_granted","task":2,"fence":3,"agent":"tester-2","phase":"red","base":"7d53a8f793adea624c8c786f16a62d577dc89199","reserved":500000,"granted_at":1794790151101,"expires_at":1794790451101,"deadline":1794790751101}', x'f20070b6e1d0cabd6d5393c85dc03a18f48da6b7f644037945a1d621c3a4b623');
INSERT INTO journal VALUES (8, 1794790151172, 1, '{"type":"cost_charged","task":2,"fence":3,"usd":2875,"usage":[{"model":"scripted-eco","input_tokens":8000,"output_tokens":700}]}', x'1ce99ea6453d54038894a7244c6fb55399c1dbdb8522ef04731b6f37dd168f91');
INSERT INTO journal VALUES (9, 1794790151172, 1, '{"type":"attempt_finished","task":2,"fence":3,"change":"dbc165f54053c633d8e088ecb2f2da4990f0258d","touched":["tests/test_list.sh"]}', x'9de48fd6ecd0ccb5664afa136cd7f77b3f69d413bcb8422ac33b65da53fafc37');
INSERT INTO journal VALUES (10, 1794790151172, 1, '{"type":"chore_started","mission":"m1","fence":4,"chore":{"chore":"gate","of":2}}', x'b8f2174725921d3e3144734fde75cdd5272895bee4f5a4659e1b9a23a3ef66a3');
INSERT INTO journal VALUES (11, 1794790151173, 1, '{"type":"cost_charged","task":1,"fence":2,"usd":16875,"usage":[{"model":"scripted-standard","input_tokens":9000,"output_tokens":900}]}', x'043d966ab498ed02fa8671271fb018d90541ee18175394800979d4cb1e382f71');
INSERT INTO journal VALUES (12, 1794790151173, 1, '{"type":"attempt_finished","task":1,"fence":2,"change":"0c190df11e18c25bf10d6067db62da0253657e6d","touched":["tests/test_add.sh"]}', x'bd936e5c917d91237a02c345bd9bbb595c9789b769de747ac0314386a1f87cde');
INSERT INTO journal VALUES (13, 1794790151173, 1, '{"type":"chore_started","mission":"m1","fence":5,"chore":{"chore":"gate","of":1}}', x'd9a53a6a05f761b7208053a19dcb1a5a8949177237e6b333e3ff45cb59c35f79');
INSERT INTO journal VALUES (14, 1794790151200, 1, '{"type":"checks_finished","task":1,"fence":5,"commit":"0c190df11e18c25bf10d6067db62da0253657e6d","results":[{"name":"test","passed":false,"output":"tests/test_add.sh: 1: .: cannot open ./lib/add.sh: No such file\nFAILED  tests/test_add.sh\n","duration_ms":7}]}', x'99568eed12e5d4ee8dcd48aa3fff29590dce2640ac30c5e846668e9c7baf6ea6');
INSERT INTO journal VALUES (15, 1794790151200, 1, '{"type":"phase_accepted","task":1,"phase":"red","change":"0c190df11e18c25bf10d6067db62da0253657e6d"}', x'4e447c2be9589d0070cf10f2dd1a37db04f2d1aa85d0be73249f7c957db75630');
INSERT INTO journal VALUES (16, 1794790151200, 1, '{"type":"lease_granted","task":1,"fence":6,"agent":"developer-1","phase":"green","base":"0c190df11e18c25bf10d6067db62da0253657e6d","reserved":500000,"granted_at":1794790151200,"expires_at":1794790451200,"deadline":1794790751200}', x'467d06cb1888202f187070722d1d024427ef598308d909655db50287660e2e05');
INSERT INTO journal VALUES (17, 1794790151201, 1, '{"type":"checks_finished","task":2,"fence":4,"commit":"dbc165f54053c633d8e088ecb2f2da4990f0258d","results":[{"name":"test","passed":false,"output":"tests/test_list.sh: 1: .: cannot open ./lib/list.sh: No such file\nFAILED  tests/test_list.sh\n","duration_ms":13}]}', x'0e71056a3f32da702b3c0d44de79083c6d728d8e49c11786366987f912ba79f1');
INSERT INTO journal VALUES (18, 1794790151201, 1, '{"type":"phase_accepted","task":2,"phase":"red","change":"dbc165f54053c633d8e088ecb2f2da4990f0258d"}', x'29c493406d613605088f5b571f32c91bf48284da819e8d7902f5dc0d62ae7682');
INSERT INTO journal VALUES (19, 1794790151201, 1, '{"type":"lease_granted","task":2,"fence":7,"agent":"developer-2","phase":"green","base":"dbc165f54053c633d8e088ecb2f2da4990f0258d","reserved":500000,"granted_at":1794790151201,"expires_at":1794790451201,"deadline":1794790751201}', x'aabdc40c5ca75be2fc51abbd4b8b05a61216aafce5f700430a46cb55894473af');
INSERT INTO journal VALUES (20, 1794790151279, 1, '{"type":"cost_charged","task":2,"fence":7,"usd":19375,"usage":[{"model":"scripted-standard","input_tokens":11000,"output_tokens":900}]}', x'c1d3b9ca925edb8c33514b79aef661504f434ccbe9bdf9344436854b2fdabdbc');
INSERT INTO journal VALUES (21, 1794790151279, 1, '{"type":"attempt_finished","task":2,"fence":7,"change":"a79bae40a0ef044f214fb4dccedcbfc6455a4721","touched":["lib/list.sh"]}', x'93b23c41941310da3575c4cb84c586dff938d5782999c2aea26167b2d2355285');
INSERT INTO journal VALUES (22, 1794790151279, 1, '{"type":"chore_started","mission":"m1","fence":8,"chore":{"chore":"gate","of":2}}', x'eb2afc0f6d490884c8b63d5deea19984fb09779cc9eca866e4b7a0747fede705');
INSERT INTO journal VALUES (23, 1794790151281, 1, '{"type":"cost_charged","task":1,"fence":6,"usd":21875,"usage":[{"model":"scripted-standard","input_tokens":12000,"output_tokens":1100}]}', x'ede9b7d6cedc48ce927ab3679c397f2e8fe32a993d533cc0956acd597a110d40');
INSERT INTO journal VALUES (24, 1794790151281, 1, '{"type":"attempt_finished","task":1,"fence":6,"change":"b0eef49e39062ba697d28e148b6bdddbf3735a99","touched":["lib/add.sh"]}', x'57deb6144c1652325cf167827c8cc4af662a64510076662f90824a942655da60');
INSERT INTO journal VALUES (25, 1794790151281, 1, '{"type":"chore_started","mission":"m1","fence":9,"chore":{"chore":"gate","of":1}}', x'c8992634840fd0b77327459e52f2cb8186179b0b3815374e8798f1f32523b725');
INSERT INTO journal VALUES (26, 1794790151309, 2, '{"type":"checks_finished","task":2,"fence":8,"commit":"a79bae40a0ef044f214fb4dccedcbfc6455a4721","results":[{"name":"test","passed":true,"output":"ok      tests/test_list.sh\n","duration_ms":14}]}', x'cc6799e3d1366c9eedbca40dc0d81ec0d16b899f25ec73b77a478a6a4f9345be');
INSERT INTO journal VALUES (27, 1794790151309, 2, '{"type":"phase_accepted","task":2,"phase":"green","change":"a79bae40a0ef044f214fb4dccedcbfc6455a4721"}', x'ead4ec71467748ebef7d4d793e548bd3a8a37b6c77eee5c569e05913f2edda73');
INSERT INTO journal VALUES (28, 1794790151309, 2, '{"type":"chore_started","mission":"m1","fence":10,"chore":{"chore":"candidate","of":2}}', x'023685a2f7cf01e6ae8a4595a31af7d555b91dae49a7ec8db2f442cbcb320d8a');
INSERT INTO journal VALUES (29, 1794790151315, 2, '{"type":"candidate_built","task":2,"fence":10,"candidate":"a79bae40a0ef044f214fb4dccedcbfc6455a4721"}', x'12531de2d8ae800519e4cbf9c28702224986598cd2726937a5912fd5bf7ff005');
INSERT INTO journal VALUES (30, 1794790151315, 2, '{"type":"candidate_passed","task":2,"candidate":"a79bae40a0ef044f214fb4dccedcbfc6455a4721"}', x'c42d96c20765ae779a4b035f8b249116d06422880ff8e8aebddcb39cfb78664a');
INSERT INTO journal VALUES (31, 1794790151315, 2, '{"type":"chore_started","mission":"m1","fence":11,"chore":{"chore":"advance","of":2}}', x'3dee369e3f6d0d88a2f13e9b5b72fadee190d5a4fd1c09c42440bacb35b0198b');
INSERT INTO journal VALUES (32, 1794790151319, 2, '{"type":"checks_finished","task":1,"fence":9,"commit":"b0eef49e39062ba697d28e148b6bdddbf3735a99","results":[{"name":"test","passed":true,"output":"ok      tests/test_add.sh\n","duration_ms":16}]}', x'390e6d5056e5e297752ba2f317602c6d8253f85787babf28b83cde184fc00918');
INSERT INTO journal VALUES (33, 1794790151319, 2, '{"type":"phase_accepted","task":1,"phase":"green","change":"b0eef49e39062ba697d28e148b6bdddbf3735a99"}', x'7bbc97cd32d0b0c6a9bde0264bc58239a6b39f8dc4ea85acf2272d9a365e9e5e');
INSERT INTO journal VALUES (34, 1794790151333, 2, '{"type":"task_merged","task":2,"fence":11,"commit":"a79bae40a0ef044f214fb4dccedcbfc6455a4721","at":1794790151333}', x'53b4a39b6051656320dd857d5312deae3b91d55f6448fcf576b8e8482347e410');
INSERT INTO journal VALUES (35, 1794790151333, 2, '{"type":"chore_started","mission":"m1","fence":12,"chore":{"chore":"candidate","of":1}}', x'11af658028a51ec32ab097655bf2144f59bef6eba158a95440e478ef3af5f4db');
INSERT INTO journal VALUES (36, 1794790151333, 2, '{"type":"lease_granted","task":5,"fence":13,"agent":"tester-1","phase":"red","base":"a79bae40a0ef044f214fb4dccedcbfc6455a4721","reserved":500000,"granted_at":1794790151333,"expires_at":1794790451333,"deadline":1794790751333}', x'bc8bf3e09c4e4e173afbee06e8931b9206db01e1356db3b115f17cb6050c551e');
INSERT INTO journal VALUES (37, 1794790151361, 2, '{"type":"candidate_built","task":1,"fence":12,"candidate":"90cab086d20cde6c17c515ababaf346b82093974"}', x'27e9c4eb46e96e482de031ff86f49a0f14171255499ec416647ed3aae1e46bd3');
INSERT INTO journal VALUES (38, 1794790151361, 2, '{"type":"chore_started","mission":"m1","fence":14,"chore":{"chore":"candidate_checks","of":1}}', x'e7cd93456bf459f94ecd589018b3f3b676b542c4e392db28a07ab9f9f6a8fb21');
INSERT INTO journal VALUES (39, 1794790151429, 2, '{"type":"checks_finished","task":1,"fence":14,"commit":"90cab086d20cde6c17c515ababaf346b82093974","results":[{"name":"test","passed":true,"output":"ok      tests/test_add.sh\nok      tests/test_list.sh\n","duration_ms":34}]}', x'31e873dc9b9868b809aeb92f67c8d219f9f51eff77c5afdf5c0805ccacbb02ae');
INSERT INTO journal VALUES (40, 1794790151429, 2, '{"type":"candidate_passed","task":1,"candidate":"90cab086d20cde6c17c515ababaf346b82093974"}', x'0a1a11b2c9d39d1175b20b75754a8e0c7928edf199e806811ff6dbec25f718dc');
PRAGMA application_id = 1262571589;
PRAGMA user_version = 1;
