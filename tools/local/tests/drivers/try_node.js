// node-postgres against a cluster: NODE_PATH=... node try_node.js URL-of-one-node

const assert = require('node:assert');
const { Client, Pool } = require('pg');

const refused = async (code, work) => {
    const error = await work().then(() => null, (error) => error);
    assert.ok(error, `nothing was refused with ${code}`);
    assert.strictEqual(error.code, code, error.message);
    return error;
};

// Tables of a database that refer to each other, in transactions over both.
async function twoTables(url) {
    const admin = new Client({ connectionString: url });
    await admin.connect();
    await admin.query('CREATE DATABASE noded');
    await admin.end();
    const pool = new Pool({ connectionString: url.replace(/[^/]*$/, 'noded'), max: 4 });
    await pool.query('CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL UNIQUE, balance int CHECK (balance >= 0))');
    await pool.query('CREATE TABLE moves (id serial PRIMARY KEY, account int NOT NULL REFERENCES accounts, delta int NOT NULL)');
    await pool.query("INSERT INTO accounts VALUES (1, 'ada', 100), (2, 'alan', 100)");
    const client = await pool.connect();
    await commitsAndRollsBack(client, pool);
    await violations(client, pool);
    client.release();
    await begunAgain(pool);
    const wrong = await pool.query(
        'SELECT id FROM accounts a WHERE balance <> 100 + (SELECT coalesce(sum(delta), 0) FROM moves m WHERE m.account = a.id)');
    assert.deepStrictEqual(wrong.rows, [], 'what accounts have is what was moved');
    await pool.end();
}

// Writes both tables, by statements that have names and so are prepared once.
async function move(client, account, delta) {
    const update = 'UPDATE accounts SET balance = balance + $1 WHERE id = $2';
    const updated = await client.query({ name: 'update', text: update, values: [delta, account] });
    assert.strictEqual(updated.rowCount, 1);
    const insert = 'INSERT INTO moves (account, delta) VALUES ($1, $2) RETURNING id';
    const inserted = await client.query({ name: 'insert', text: insert, values: [account, delta] });
    assert.ok(inserted.rows[0].id > 0);
}

// The balance of an account, and how often it was moved, as others see them.
async function seen(pool, account) {
    const both = 'SELECT balance, (SELECT count(*)::int FROM moves WHERE account = $1) AS moves FROM accounts WHERE id = $1';
    const row = (await pool.query(both, [account])).rows[0];
    return [row.balance, row.moves];
}

async function commitsAndRollsBack(client, pool) {
    await client.query('BEGIN');
    for (let round = 0; round < 10; round++) {
        await move(client, 1, -5);
        await move(client, 2, 5);
    }
    assert.deepStrictEqual(await seen(pool, 1), [100, 0], 'nothing is seen before the commit');
    await client.query('COMMIT');
    assert.deepStrictEqual([await seen(pool, 1), await seen(pool, 2)], [[50, 10], [150, 10]]);
    await client.query('BEGIN');
    await move(client, 1, -5);
    await client.query('ROLLBACK');
    assert.deepStrictEqual(await seen(pool, 1), [50, 10], 'nothing is left of what was rolled back');
    await client.query('BEGIN');
    await move(client, 1, -1);
    await client.query('SAVEPOINT here');
    await move(client, 1, -1);
    await move(client, 2, 2);
    await client.query('ROLLBACK TO SAVEPOINT here');
    await move(client, 2, 1);
    await client.query('COMMIT');
    assert.deepStrictEqual([await seen(pool, 1), await seen(pool, 2)], [[49, 11], [151, 11]]);
}

async function violations(client, pool) {
    const wrong = [
        ['23503', 'moves_account_fkey', 'INSERT INTO moves (account, delta) VALUES (99, 1)'],
        ['23503', 'moves_account_fkey', 'DELETE FROM accounts WHERE id = 1'],
        ['23505', 'accounts_pkey', "INSERT INTO accounts VALUES (1, 'again', 0)"],
        ['23505', 'accounts_owner_key', "INSERT INTO accounts VALUES (3, 'ada', 0)"],
        ['23514', 'accounts_balance_check', 'UPDATE accounts SET balance = -1 WHERE id = 1'],
        ['23502', undefined, 'INSERT INTO moves (account) VALUES (1)'],
    ];
    for (const [code, constraint, statement] of wrong) {
        const error = await refused(code, () => client.query(statement));
        assert.strictEqual(error.constraint, constraint, statement);
    }
    // Behind a savepoint the rest of a transaction stays; without one all of it goes.
    await client.query('BEGIN');
    await move(client, 1, 1);
    await client.query('SAVEPOINT here');
    await refused('23503', () => client.query(wrong[0][2]));
    await refused('25P02', () => client.query('SELECT 1'));
    await client.query('ROLLBACK TO SAVEPOINT here');
    await client.query('COMMIT');
    await client.query('BEGIN');
    await move(client, 1, 1);
    await refused('23503', () => client.query(wrong[0][2]));
    assert.strictEqual((await client.query('COMMIT')).command, 'ROLLBACK');
    assert.deepStrictEqual(await seen(pool, 1), [50, 12]);
}

// Two transactions of one snapshot each that write one row: the second one is told so, and is done again.
async function begunAgain(pool) {
    const [client, other] = [await pool.connect(), await pool.connect()];
    let tries = 0;
    for (let done = false; !done;) {
        tries += 1;
        try {
            await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
            const { balance } = (await client.query('SELECT balance FROM accounts WHERE id = 2')).rows[0];
            if (tries === 1) {
                await other.query('BEGIN');
                await move(other, 2, 10);
                await other.query('COMMIT');
            }
            await client.query('UPDATE accounts SET balance = $1 WHERE id = 2', [balance - 1]);
            await client.query('INSERT INTO moves (account, delta) VALUES (2, -1)');
            await client.query('COMMIT');
            done = true;
        } catch (error) {
            assert.ok(error.code === '40001' && tries === 1, error);
            await client.query('ROLLBACK');
        }
    }
    client.release();
    other.release();
    assert.strictEqual(tries, 2);
    assert.deepStrictEqual(await seen(pool, 2), [160, 13]);
}

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
    await twoTables(process.argv[2]);
    console.log('node-postgres ok');
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
