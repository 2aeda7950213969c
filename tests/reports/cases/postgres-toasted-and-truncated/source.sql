CREATE TABLE bills (id BIGINT PRIMARY KEY, amount INT, doc TEXT, picture BYTEA, tags TEXT[]);
ALTER TABLE bills ALTER COLUMN doc SET STORAGE EXTERNAL, ALTER COLUMN picture SET STORAGE EXTERNAL,
    ALTER COLUMN tags SET STORAGE EXTERNAL;
INSERT INTO bills VALUES (1, 1, repeat('1', 2500), NULL, NULL), (2, 2, NULL, decode(repeat('00', 2500), 'hex'), NULL),
    (3, 3, NULL, NULL, array_fill('x'::text, ARRAY[700])), (4, 4, 'short', '\x01', '{a}');
-- after 4 records
UPDATE bills SET amount = amount + 10;
CREATE TABLE as_it_was AS SELECT * FROM bills;
TRUNCATE bills;
INSERT INTO bills VALUES (5, 5, NULL, NULL, NULL);
-- after 10 records
SELECT json_build_object('id', id, 'amount', CASE WHEN id < 4 THEN amount - 10 ELSE amount END, 'doc', doc,
    'picture', translate(encode(picture, 'base64'), E'\n', ''), 'tags', tags)
FROM (SELECT * FROM as_it_was UNION ALL SELECT * FROM bills) AS either ORDER BY id;
