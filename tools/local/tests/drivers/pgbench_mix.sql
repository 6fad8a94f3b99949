\set id random(1, 100)
\set by random(1, 9)
SELECT n, filler FROM bench WHERE id = :id;
UPDATE bench SET n = n + :by WHERE id = :id;
