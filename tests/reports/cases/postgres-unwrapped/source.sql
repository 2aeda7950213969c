CREATE TABLE bills (id BIGINT PRIMARY KEY, customer TEXT NOT NULL, amount NUMERIC(12,2), day DATE);
INSERT INTO bills VALUES (1, 'one', 1.10, '2024-05-06'), (2, 'two', 2.20, NULL), (3, 'three', 3.30, NULL);
-- after 3 records
UPDATE bills SET amount = 1.11 WHERE id = 1;
UPDATE bills SET id = 20 WHERE id = 2;
DELETE FROM bills WHERE id = 3;
INSERT INTO bills VALUES (3, 'again', NULL, NULL);
-- after 8 records
SELECT json_build_object('id', id, 'customer', customer, 'amount', amount::text, 'day', day) FROM bills ORDER BY id;
