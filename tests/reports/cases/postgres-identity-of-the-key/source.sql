CREATE TABLE bills (
    id BIGINT PRIMARY KEY, customer TEXT NOT NULL, amount NUMERIC(12,2), big NUMERIC(38,0), quantity INT, small SMALLINT,
    ratio DOUBLE PRECISION, share REAL, paid BOOLEAN, day DATE, seen TIMESTAMPTZ, changed TIMESTAMP, doc JSONB, tags TEXT[],
    counts INT[], picture BYTEA, number UUID);
INSERT INTO bills VALUES
    (1, 'Zoë', 12.30, 12345678901234567890123456789012345678, 7, -3, 0.1, 0.25, true, '2024-05-06',
     '2024-05-06 09:08:00.123456+02', '2024-05-06 09:08:00.123', '{"a": [1, null]}', '{a,NULL,"b,c"}', '{1,NULL}',
     '\x00ff10', '6ba7b810-9dad-11d1-80b4-00c04fd430c8'),
    (2, '', -0.01, -1, -2147483648, 32767, 1e300, -1.5, false, '1969-12-31', '1969-12-31 23:59:59.999999+00',
     '1969-12-31 23:59:59.999', '"text"', '{}', '{}', '', '00000000-0000-0000-0000-000000000000'),
    (3, 'gone', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
-- after 3 records
INSERT INTO bills (id, customer, amount) VALUES (4, 'new', 9999999999.99);
UPDATE bills SET amount = amount + 0.07, seen = '2200-01-01 00:00:00.000001+00' WHERE id = 1;
UPDATE bills SET id = 20 WHERE id = 2;
DELETE FROM bills WHERE id = 3;
BEGIN;
UPDATE bills SET quantity = 1 WHERE id = 4;
UPDATE bills SET quantity = quantity + 1, day = '0001-01-01' WHERE id = 4;
COMMIT;
BEGIN;
INSERT INTO bills (id, customer) VALUES (5, 'never');
DELETE FROM bills WHERE id = 5;
COMMIT;
INSERT INTO bills (id, customer) VALUES (3, 'again');
-- after 16 records
INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["public.bills"], "type": "incremental"}');
-- after 20 records
SELECT json_build_object(
    'id', id, 'customer', customer, 'amount', amount::text, 'big', big::text, 'quantity', quantity, 'small', small,
    'ratio', ratio, 'share', share, 'paid', paid, 'day', to_char(day, 'YYYY-MM-DD'),
    'seen', to_char(seen AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'changed', to_char(changed, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'doc', doc::text, 'tags', tags, 'counts', counts,
    'picture', encode(picture, 'base64'), 'number', number)
FROM bills ORDER BY id;
