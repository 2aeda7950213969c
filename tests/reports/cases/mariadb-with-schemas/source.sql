CREATE TABLE bills (
    id BIGINT PRIMARY KEY, customer VARCHAR(40) NOT NULL, amount DECIMAL(12,2), big DECIMAL(38,0), quantity INT UNSIGNED,
    huge BIGINT UNSIGNED, small TINYINT, ratio DOUBLE, share FLOAT, day DATE, seen TIMESTAMP(6) NULL, changed DATETIME(3),
    kind ENUM('new', 'paid'), doc JSON, picture VARBINARY(16)) CHARACTER SET utf8mb4;
SET time_zone = '+00:00';
INSERT INTO bills VALUES
    (1, 'Zoë', 12.30, 12345678901234567890123456789012345678, 4294967295, 18446744073709551615, -3, 0.1, 0.25,
     '2024-05-06', '2024-05-06 07:08:00.123456', '2024-05-06 09:08:00.123', 'paid', '{"a": [1, null]}', x'00ff10'),
    (2, '', -0.01, -1, 0, 0, 127, 1e300, -1.5, '1969-12-31', '1970-01-01 00:00:01.000001', '1969-12-31 23:59:59.999', 'new',
     '"text"', ''),
    (3, 'gone', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
-- after 3 records
INSERT INTO bills (id, customer, amount) VALUES (4, 'new', 9999999999.99);
UPDATE bills SET amount = amount + 0.07 WHERE id = 1;
UPDATE bills SET id = 20 WHERE id = 2;
DELETE FROM bills WHERE id = 3;
FLUSH BINARY LOGS;
BEGIN;
UPDATE bills SET quantity = 1 WHERE id = 4;
UPDATE bills SET quantity = quantity + 1, day = '1000-01-01' WHERE id = 4;
COMMIT;
INSERT INTO bills (id, customer) VALUES (5, 'never');
DELETE FROM bills WHERE id = 5;
INSERT INTO bills (id, customer) VALUES (3, 'again');
-- after 16 records
SET time_zone = '+00:00';
SELECT JSON_OBJECT(
    'id', id, 'customer', customer, 'amount', CAST(amount AS CHAR), 'big', CAST(big AS CHAR), 'quantity', quantity,
    'huge', CAST(huge AS CHAR), 'small', small, 'ratio', ratio, 'share', share, 'day', CAST(day AS CHAR),
    'seen', DATE_FORMAT(seen, '%Y-%m-%dT%H:%i:%s.%fZ'),
    'changed', CONCAT(LEFT(DATE_FORMAT(changed, '%Y-%m-%dT%H:%i:%s.%f'), 23), 'Z'), 'kind', kind,
    'doc', CAST(doc AS CHAR), 'picture', TO_BASE64(picture))
FROM bills ORDER BY id;
