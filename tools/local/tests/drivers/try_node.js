// node-postgres against a cluster: NODE_PATH=... node try_node.js URL-of-one-node

const assert = require('node:assert');
const { Client, Pool } = require('pg');

const refused = async (code, work) => {
    const error = await work().then(() => null, (error) => error);
    assert.ok(error, `nothing was refused with ${code}`);
    assert.strictEqual(error.code, code, error.message);
};

async function main() {
    const client = new Client({ connectionString: process.argv[2] });
    await client.connect();
    await client.query('CREATE TABLE noded (id serial PRIMARY KEY, name text NOT NULL, n bigint, at timestamptz DEFAULT now(), tree jsonb) WITH (partitions = 1)');
    const made = await client.query('INSERT INTO noded (name, n, tree) VALUES ($1, $2, $3) RETURNING id, at', ['one', 2 ** 40, { a: [1] }]);
    assert.strictEqual(made.rowCount, 1);
    assert.ok(made.rows[0].id > 0 && made.rows[0].at instanceof Date);
    for (let n = 0; n < 10; n++) {
        await client.query({ name: 'put', text: 'INSERT INTO noded (name, n) VALUES ($1, $2)', values: [`name ${n}`, n] });
    }
    const one = await client.query('SELECT name, n, tree FROM noded WHERE id = $1', [made.rows[0].id]);
    assert.deepStrictEqual(one.rows, [{ name: 'one', n: String(2 ** 40), tree: { a: [1] } }]);
    assert.deepStrictEqual(one.fields.map((field) => field.dataTypeID).slice(0, 2), [25, 20]);
    const some = await client.query({ text: 'SELECT n FROM noded WHERE n < $1 ORDER BY n', values: [3], rowMode: 'array' });
    assert.deepStrictEqual(some.rows, [['0'], ['1'], ['2']]);
    assert.strictEqual((await client.query('UPDATE noded SET n = n + 1 WHERE id = $1', [made.rows[0].id])).rowCount, 1);
    assert.strictEqual((await client.query('DELETE FROM noded WHERE id = $1', [made.rows[0].id])).rowCount, 1);
    await client.query('CREATE TABLE marked (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), r real, t time, n int[], w text[]) WITH (partitions = 1)');
    const key = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11';
    await client.query('INSERT INTO marked VALUES ($1, $2, $3, $4, $5)', [key, 0.5, '04:05', [1, 2], ['a', 'b c']]);
    const mark = await client.query('SELECT * FROM marked WHERE id = $1', [key]);
    assert.deepStrictEqual(mark.rows, [{ id: key, r: 0.5, t: '04:05:00', n: [1, 2], w: ['a', 'b c'] }]);
    assert.deepStrictEqual(mark.fields.map((field) => field.dataTypeID), [2950, 700, 1083, 1007, 1009]);
    const drawn = await client.query('INSERT INTO marked (r) VALUES (1) RETURNING id');
    assert.match(drawn.rows[0].id, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
    await refused('23502', () => client.query('INSERT INTO noded (name) VALUES ($1)', [null]));
    await refused('42P01', () => client.query('SELECT * FROM nothing'));
    await client.query('BEGIN');
    await client.query("INSERT INTO noded (name) VALUES ('lost')");
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await client.query("INSERT INTO noded (name) VALUES ('kept')");
    await client.query('COMMIT');
    const names = await client.query("SELECT name FROM noded WHERE name IN ('lost', 'kept')");
    assert.deepStrictEqual(names.rows, [{ name: 'kept' }]);
    await client.end();
    const pool = new Pool({ connectionString: process.argv[2], max: 4 });
    const counts = await Promise.all(Array.from({ length: 20 }, () => pool.query('SELECT count(*)::int AS count FROM noded')));
    assert.ok(counts.every((count) => count.rows[0].count === 11), JSON.stringify(counts[0].rows));
    await pool.end();
    console.log('node-postgres ok');
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
