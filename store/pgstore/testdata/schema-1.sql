-- A record and two entries of the evidence log as builds with migrations 1 to 3 wrote them.
INSERT INTO semel.idempotency_log (id, revision, record, next_at, since, held, idempotency_key, operation_type, request_payload,
    response_payload, status, created_at, updated_at, expires_at, user_id, session_id)
VALUES ('\x137e1dd75403291b9cbd835099e692a74904ca8a9babcf7d948793d2afd91ff5', '\x01000000000000000000000000000000', '\x010100000000000000000000000000000008e4e1d0ae0e0674656e616e74097072696e636970616c096f7065726174696f6e076f726465722d31010301012e549424ee2a82dc8256c22cbe91807a5a2733e9638f448e910c3d606d994b2d097072696e636970616c0202020008e49bc6ae0e08e49bc6ae0e08e49bc6ae0e08e49bc6ae0e0008e4e1d0ae0e000000003cbd8f6ff6962291', 1927944306000000007, 1927857906000000007, false, 'order-1', 'operation', 'fingerprint', '\x70616964', 'completed', '2031-02-03 04:05:06+00',
    '2031-02-03 04:05:06+00', '2031-02-04 04:05:06+00', 'principal', 'tenant');
INSERT INTO semel.semel_evidence (n, subject, leaf, opening) VALUES (0, '\x00000000000000000000000000000000', '\x6f6c64', '\x6f70656e');
INSERT INTO semel.semel_evidence_new (subject, leaf) VALUES ('\x00000000000000000000000000000000', '\x6e6577');
INSERT INTO semel.idempotency_archive (id, revision, record, idempotency_key, operation_type, status, user_id, session_id)
    SELECT id, revision, record, idempotency_key, operation_type, status, user_id, session_id FROM semel.idempotency_log;
