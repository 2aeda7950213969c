CREATE TABLE bills (
    country TEXT, id BIGINT, amount NUMERIC(12,2), day DATE, seen TIMESTAMPTZ, changed TIMESTAMP,
    minute TIMESTAMP(3), at TIME, doc TEXT, PRIMARY KEY (id));
ALTER TABLE bills REPLICA IDENTITY FULL;
ALTER TABLE bills ALTER COLUMN doc SET STORAGE EXTERNAL;
INSERT INTO bills VALUES
    ('CH', 1, 12.30, '2024-05-06', '2024-05-06 09:08:00.123456+02', '2024-05-06 09:08:00.123456',
     '2024-05-06 09:08:00.123', '09:08:00.000001', repeat('1', 2500)),
    ('FR', 2, -0.01, '1969-12-31', '1969-12-31 23:59:59.999999+00', '1969-12-31 23:59:59.999999',
     '1969-12-31 23:59:59.999', '23:59:59', 'short'),
    ('FR', 3, NULL, NULL, NULL, NULL, NULL, NULL, repeat('3', 2500));
-- after 3 records
UPDATE bills SET amount = 1 WHERE id = 1;
UPDATE bills SET country = 'IT' WHERE id = 3;
UPDATE bills SET id = 20, country = 'DE' WHERE id = 2;
DELETE FROM bills WHERE id = 1;
INSERT INTO bills (country, id, amount) VALUES ('AT', 1, 2);
UPDATE bills SET day = '9999-12-31', changed = '0001-01-01 00:00:00.000001' WHERE id = 1;
-- after 12 records
INSERT INTO signals VALUES ('1', 'execute-snapshot', '{"data-collections": ["public.bills"], "type": "incremental"}');
-- after 15 records
UPDATE bills SET amount = 3 WHERE id = 3;
-- after 16 records
SELECT json_build_object(
    'id', id, 'country', country, 'amount', amount::text, 'day', to_char(day, 'YYYY-MM-DD'),
    'seen', to_char(seen AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'changed', to_char(changed, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'minute', to_char(minute, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'at', (extract(epoch FROM at) * 1000000)::bigint, 'doc', doc)
FROM bills ORDER BY id;
