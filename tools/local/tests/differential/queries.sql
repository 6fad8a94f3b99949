-- Queries, writes, constraints and transactions.
CREATE TABLE town (id int PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, size int CHECK (size > 0), founded date);
CREATE TABLE person (id int PRIMARY KEY, town int REFERENCES town ON DELETE CASCADE, name text NOT NULL, pay numeric(10,2), born timestamptz, ok boolean DEFAULT true);
INSERT INTO town VALUES (1, 'Ulm', 120, '1181-01-01'), (2, 'Bonn', 330, '1244-05-06'), (3, 'Kiel', 250, NULL);
INSERT INTO person VALUES (1, 1, 'ann', 100.5, '2000-01-02 03:04:05+00', true), (2, 1, 'bob', 200, '1999-12-31 23:59:59+00', false), (3, 2, 'cid', NULL, NULL, NULL), (4, NULL, 'dee', 50.25, '2001-02-03 00:00:00+00', true);
SELECT * FROM town ORDER BY id;
-- differs: trailing zeros of a numeric are not kept
SELECT * FROM person ORDER BY id;
INSERT INTO town VALUES (1, 'Köln', 1, NULL);
INSERT INTO town VALUES (4, 'Ulm', 1, NULL);
INSERT INTO town VALUES (4, NULL, 1, NULL);
INSERT INTO town VALUES (4, 'x', 0, NULL);
INSERT INTO town VALUES (4, 'a name that is much too long', 1, NULL);
INSERT INTO town VALUES ('four', 'x', 1, NULL);
INSERT INTO town VALUES (99999999999, 'x', 1, NULL);
INSERT INTO town (id, nope) VALUES (4, 1);
INSERT INTO nope VALUES (1);
INSERT INTO town VALUES (4, 'x', 1, '2024-02-30');
INSERT INTO person VALUES (5, 9, 'eve', 1, NULL, NULL);
INSERT INTO person VALUES (5, 1, 'eve', 123456789.5, NULL, NULL);
INSERT INTO person VALUES (5, 1, 'eve', 1.005, NULL, NULL) RETURNING id, pay;
INSERT INTO town VALUES (1, 'Ulm', 5, NULL) ON CONFLICT DO NOTHING;
INSERT INTO town VALUES (1, 'Ulm', 5, NULL) ON CONFLICT (id) DO UPDATE SET size = town.size + EXCLUDED.size RETURNING size;
INSERT INTO town VALUES (9, 'Bonn', 7, NULL) ON CONFLICT (name) DO UPDATE SET size = EXCLUDED.size RETURNING id, size;
INSERT INTO town VALUES (9, 'Bonn', 7, NULL) ON CONFLICT (size) DO NOTHING;
UPDATE person SET pay = pay * 2 WHERE pay IS NOT NULL;
UPDATE person SET pay = 'x';
UPDATE person SET name = NULL WHERE id = 1;
UPDATE person SET town = 77 WHERE id = 1;
UPDATE town SET size = -1;
UPDATE person SET name = upper(name), ok = NOT ok WHERE id < 3 RETURNING id, name, ok;
DELETE FROM town WHERE id = 2;
SELECT id, town FROM person ORDER BY id;
DELETE FROM person WHERE id = 99;
-- differs: trailing zeros of a numeric are not kept
SELECT count(*), count(pay), sum(pay), avg(pay), min(pay), max(pay) FROM person;
SELECT town, count(*) FROM person GROUP BY town ORDER BY town NULLS FIRST;
SELECT town, count(*) FROM person GROUP BY town HAVING count(*) > 1;
SELECT t.name, p.name FROM town t LEFT JOIN person p ON p.town = t.id ORDER BY 1, 2;
SELECT t.name, p.name FROM town t RIGHT JOIN person p ON p.town = t.id ORDER BY 2;
SELECT t.name, p.name FROM town t FULL JOIN person p ON p.town = t.id ORDER BY 1, 2;
SELECT name FROM town WHERE EXISTS (SELECT 1 FROM person WHERE town = town.id) ORDER BY 1;
SELECT name FROM town WHERE id NOT IN (SELECT town FROM person WHERE town IS NOT NULL) ORDER BY 1;
SELECT name, (SELECT count(*) FROM person WHERE person.town = t.id) FROM town t ORDER BY 1;
SELECT (SELECT id FROM person);
SELECT name FROM person WHERE name LIKE 'A%' OR name ILIKE 'B%' ORDER BY 1;
SELECT name FROM person WHERE name ~ '^[a-d]';
SELECT id FROM person ORDER BY pay DESC NULLS LAST, id LIMIT 2 OFFSET 1;
SELECT DISTINCT ok FROM person ORDER BY 1;
SELECT id FROM person UNION SELECT id FROM town ORDER BY 1;
SELECT id FROM person INTERSECT SELECT id FROM town ORDER BY 1;
SELECT id FROM person EXCEPT SELECT id FROM town ORDER BY 1;
SELECT 1 UNION SELECT 'x';
SELECT row_number() OVER (ORDER BY id DESC), id FROM person ORDER BY id;
SELECT id, lag(id) OVER (ORDER BY id), rank() OVER (PARTITION BY town ORDER BY id) FROM person ORDER BY id;
-- differs: sum is no window function here
SELECT sum(id) OVER (ORDER BY id) FROM person;
-- differs: LATERAL is refused by name
SELECT t.id, p.name FROM town t, LATERAL (SELECT name FROM person WHERE town = t.id LIMIT 1) p;
-- differs: DISTINCT ON is refused by name
SELECT DISTINCT ON (town) town, id FROM person ORDER BY town, id;
WITH big AS (SELECT * FROM person WHERE pay > 100) SELECT count(*) FROM big;
SELECT string_agg(name, ',' ORDER BY name) FROM person;
SELECT array_agg(id ORDER BY id) FROM person;
SELECT bool_and(ok), bool_or(ok) FROM person;
SELECT count(*) FILTER (WHERE ok) FROM person;
SELECT 1 / 0;
-- differs: trailing zeros of a numeric are not kept
SELECT 7 / 2, -7 / 2, 7 % 3, -7 % 3, 7.0 / 2, 2 ^ 10;
SELECT 2147483647 + 1;
SELECT 9223372036854775807 + 1;
SELECT 0.1 + 0.2, 0.1::float8 + 0.2::float8, 1e10::float8, 1e-7::float8;
SELECT round(2.5), round(-2.5), round(2.567, 2), trunc(2.99), ceil(1.1), floor(-1.1), abs(-3);
-- differs: trailing zeros of a numeric are not kept
SELECT '12'::int + 1, '1.5'::numeric * 2, 'true'::boolean, '2024-02-29'::date;
SELECT 'x'::int;
SELECT '2023-02-29'::date;
SELECT cast(1.5 AS int), cast(2.5 AS int), cast(-1.5 AS int);
SELECT NULL = NULL, NULL IS NULL, NULL AND false, NULL OR true, coalesce(NULL, 2), nullif(1, 1);
SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END, CASE 3 WHEN 3 THEN 'three' END;
SELECT greatest(1, 3, 2), least('b', 'a');
-- differs: lower and upper know all letters, and in PostgreSQL's collation C those of ASCII
SELECT length('äöü'), upper('straße'), lower('ÄÖ'), substring('abcdef' FROM 2 FOR 3), position('c' IN 'abc'), trim('  x  '), replace('aba', 'a', 'c');
SELECT left('abc', 2), right('abc', 2), repeat('ab', 3), reverse('abc'), concat('a', NULL, 1), 'a' || 'b';
SELECT 'abc' LIKE 'a_c', 'abc' LIKE 'a', 'a%c' LIKE 'a\%c';
SELECT extract(year FROM date '2024-05-06'), date_trunc('month', timestamp '2024-05-06 07:08:09'), date '2024-05-06' + 3, date '2024-05-06' - date '2024-05-01';
SELECT timestamp '2024-05-06 07:08:09', timestamptz '2024-05-06 07:08:09+02', timestamptz '2024-05-06 07:08:09+02' AT TIME ZONE 'UTC';
-- differs: json is shown without blanks
SELECT '[1, 2]'::json, '{"a": 1}'::json;
SELECT ARRAY[1, 2, 3], '{a,b}'::text[], (ARRAY[4, 5])[2], 2 = ANY (ARRAY[1, 2]), cardinality(ARRAY[1, 2]);
SELECT * FROM generate_series(1, 3) AS g(n);
SELECT nope FROM person;
SELECT id FROM person, town;
SELECT sum(name) FROM person;
SELECT name, count(*) FROM person;
SELECT lower(1);
SELECT * FROM person WHERE id = 'x';
SELECT * FROM person WHERE name = 1;
SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v(n, s) ORDER BY n;
SELECT FROM;
SELEC 1;
BEGIN;
INSERT INTO town VALUES (10, 'Bern', 1, NULL);
SELECT count(*) FROM town WHERE id = 10;
SAVEPOINT a;
INSERT INTO town VALUES (10, 'Bern', 1, NULL);
SELECT 1;
ROLLBACK TO a;
UPDATE town SET size = 2 WHERE id = 10;
COMMIT;
SELECT size FROM town WHERE id = 10;
BEGIN;
DELETE FROM town;
ROLLBACK;
SELECT count(*) FROM town;
BEGIN READ ONLY;
INSERT INTO town VALUES (11, 'x', 1, NULL);
COMMIT;
COMMIT;
SELECT id FROM person WHERE id = 1 FOR UPDATE;
TRUNCATE town;
TRUNCATE town, person;
SELECT count(*) FROM town;
DROP TABLE town;
DROP TABLE town CASCADE;
INSERT INTO person VALUES (1, 77, 'x', NULL, NULL, NULL);
SELECT 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid;
SELECT timestamp '2024-01-01' + interval '1 day';
-- differs: JSON operators are refused by name
SELECT '{"a": 1}'::json -> 'a';
-- differs: rows are never locked out
SELECT id FROM person FOR UPDATE SKIP LOCKED;
-- differs: snapshots of whole transactions, and nothing above that
BEGIN ISOLATION LEVEL SERIALIZABLE;
ROLLBACK;
SELECT 'abcdef'::varchar(3), cast('äöü' AS varchar(2)), CASE WHEN true THEN 'longer' END::varchar(4);
