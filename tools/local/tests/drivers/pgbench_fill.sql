\set id random(1, 1000000000)
INSERT INTO bench (id, n, filler) VALUES (:id, 0, 'filled') ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, filler = EXCLUDED.filler;
