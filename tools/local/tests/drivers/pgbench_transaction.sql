\set id random(1, 100)
BEGIN;
SELECT n FROM bench WHERE id = :id;
UPDATE bench SET n = n + 1, filler = 'changed' WHERE id = :id;
COMMIT;
