"""psycopg 3 against a cluster: python3 try_psycopg.py URL"""

import datetime
import decimal
import sys
import uuid

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

URL = sys.argv[1]


def raises(sqlstate, work):
    try:
        work()
    except psycopg.Error as error:
        assert error.sqlstate == sqlstate, (error.sqlstate, str(error))
        return error
    raise AssertionError(f"nothing was refused with {sqlstate}")


def types(conn):
    conn.execute(
        "CREATE TABLE kinds (id int PRIMARY KEY, big bigint, num numeric(10, 2), real float8, words varchar(20), raw bytea, "
        "truth boolean, day date, at timestamptz, tree jsonb) WITH (partitions = 1)"
    )
    moment = datetime.datetime(2024, 2, 29, 12, 30, 15, 250000, tzinfo=datetime.timezone.utc)
    row = (1, 2**40, decimal.Decimal("12.34"), 0.5, "grüße", b"\x00\xff", True, datetime.date(1815, 12, 10), moment)
    insert = "INSERT INTO kinds VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    conn.execute(insert, (*row, psycopg.types.json.Jsonb({"a": [1, None]})))
    conn.execute(insert, (2, *[None] * 9))
    for binary in (False, True):
        cursor = conn.cursor(binary=binary)
        found = cursor.execute("SELECT * FROM kinds WHERE id = %s", (1,)).fetchone()
        assert found[:9] == row and found[9] == {"a": [1, None]}, found
        assert cursor.execute("SELECT big, num, tree FROM kinds WHERE id = 2").fetchone() == (None, None, None)
    columns = [(column.name, column.type_code) for column in conn.execute("SELECT id, big, words FROM kinds").description]
    assert columns[0] == ("id", 23) and columns[1] == ("big", 20), columns
    raises("22003", lambda: conn.execute("INSERT INTO kinds (id) VALUES (%s)", (2**31,)))
    raises("22001", lambda: conn.execute("INSERT INTO kinds (id, words) VALUES (3, %s)", ("x" * 21,)))
    rounded = conn.execute("INSERT INTO kinds (id, num) VALUES (3, 1.005) RETURNING num").fetchone()
    assert rounded == (decimal.Decimal("1.01"),), rounded


def more_types(conn):
    """uuid, real, time, interval and arrays, in text and in binary."""
    conn.execute(
        "CREATE TABLE marks (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), r real, t time, i interval, n int[], w text[], u uuid[]) "
        "WITH (partitions = 1)"
    )
    key = uuid.UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
    row = (key, 0.5, datetime.time(4, 5, 6, 789000), datetime.timedelta(days=2, hours=3), [1, 2, None], ["a", "b c", ""], [key])
    conn.execute("INSERT INTO marks VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
    conn.execute("INSERT INTO marks VALUES (%b, %b, %b, %b, %b, %b, %b)", (uuid.UUID(int=7), *row[1:]))
    for binary in (False, True):
        cursor = conn.cursor(binary=binary)
        for wanted in (key, uuid.UUID(int=7)):
            found = cursor.execute("SELECT * FROM marks WHERE id = %b", (wanted,)).fetchone()
            assert found == (wanted, *row[1:]), (binary, found)
        assert cursor.execute("SELECT count(*) FROM marks WHERE id = ANY(%s)", ([key],)).fetchone() == (1,)
        assert cursor.execute("SELECT id FROM marks WHERE 2 = ANY(n) ORDER BY id").fetchall() == [(uuid.UUID(int=7),), (key,)]
    types = [column.type_code for column in conn.execute("SELECT * FROM marks").description]
    assert types == [2950, 700, 1083, 1186, 1007, 1009, 2951], types
    drawn = conn.execute("INSERT INTO marks (r) VALUES (1) RETURNING id").fetchone()[0]
    assert drawn.version == 4, drawn
    raises("22P02", lambda: conn.execute("INSERT INTO marks (id) VALUES ('x')"))
    raises("22003", lambda: conn.execute("INSERT INTO marks (r) VALUES (1e39)"))
    with conn.cursor() as cursor:
        with cursor.copy("COPY marks (id, r, t, i, n, w) FROM STDIN") as copy:
            copy.write_row((uuid.UUID(int=9), 0.25, datetime.time(1), datetime.timedelta(hours=30), [3], ["x,y"]))
        with cursor.copy("COPY (SELECT id, r, t, i, n, w FROM marks WHERE r = 0.25) TO STDOUT") as copy:
            text = b"".join(copy).decode()
    assert text == "00000000-0000-0000-0000-000000000009\t0.25\t01:00:00\t1 day 06:00:00\t{3}\t{\"x,y\"}\n", text


def statements(conn):
    conn.execute(
        "CREATE TABLE things (id serial PRIMARY KEY, name text NOT NULL, made timestamptz DEFAULT now(), n int DEFAULT 7) "
        "WITH (partitions = 1)"
    )
    with conn.cursor(row_factory=dict_row) as cursor:
        one = cursor.execute("INSERT INTO things (name) VALUES (%s) RETURNING *", ("one",)).fetchone()
        assert one["name"] == "one" and one["n"] == 7 and one["made"] is not None, one
        for number in range(20):
            cursor.execute("INSERT INTO things (name, n) VALUES (%s, %s)", (f"t{number}", number), prepare=True)
        count = cursor.execute("SELECT count(*) AS count, count(DISTINCT id) AS ids FROM things").fetchone()
        assert count == {"count": 21, "ids": 21}, count
    changed = conn.execute("UPDATE things SET n = n + 1 WHERE id = %s", (one["id"],))
    assert changed.rowcount == 1
    assert conn.execute("SELECT n FROM things WHERE id = %s", (one["id"],)).fetchone() == (8,)
    query = sql.SQL("SELECT {} FROM {} WHERE n < %s ORDER BY n").format(sql.Identifier("name"), sql.Identifier("things"))
    assert [name for (name,) in conn.execute(query, (3,))] == ["t0", "t1", "t2"]
    assert conn.execute("DELETE FROM things WHERE id = %s", (one["id"],)).rowcount == 1
    raises("23505", lambda: conn.execute("INSERT INTO things (id, name) SELECT id, name FROM things WHERE n = 3"))
    raises("23502", lambda: conn.execute("INSERT INTO things (name) VALUES (NULL)"))
    raises("42P01", lambda: conn.execute("SELECT * FROM nothing"))
    raises("42601", lambda: conn.execute("SELEC 1"))


def transactions(url):
    with psycopg.connect(url) as conn:
        conn.execute("INSERT INTO things (name, n) VALUES ('kept', 100)")
        conn.execute("UPDATE things SET n = 101 WHERE n = 100")
    with psycopg.connect(url) as conn:
        assert conn.execute("SELECT n FROM things WHERE name = 'kept'").fetchone() == (101,)
        conn.execute("INSERT INTO things (name) VALUES ('lost')")
        conn.rollback()
        assert conn.execute("SELECT count(*) FROM things WHERE name = 'lost'").fetchone() == (0,)
        raises("42P01", lambda: conn.execute("SELECT * FROM nothing"))
        raises("25P02", lambda: conn.execute("SELECT 1"))
        conn.rollback()
        with conn.transaction():
            conn.execute("INSERT INTO things (name, n) VALUES ('nested', 1)")
            try:
                with conn.transaction():
                    conn.execute("INSERT INTO things (name, n) VALUES ('undone', 1)")
                    raise KeyError
            except KeyError:
                pass
        names = conn.execute("SELECT name FROM things WHERE name IN ('nested', 'undone')").fetchall()
        assert names == [("nested",)], names


def copies(conn):
    conn.execute("CREATE TABLE copied (id bigint PRIMARY KEY, words text, num numeric)")
    with conn.cursor() as cursor:
        with cursor.copy("COPY copied (id, words, num) FROM STDIN") as copy:
            for number in range(5000):
                copy.write_row((number, f"tab\t and \\ {number}", decimal.Decimal(number) / 4))
        assert cursor.rowcount == 5000, cursor.rowcount
        with cursor.copy("COPY (SELECT id, words, num FROM copied WHERE id < 3 ORDER BY id) TO STDOUT") as copy:
            copy.set_types(["int8", "text", "numeric"])
            rows = list(copy.rows())
        assert rows[2] == (2, "tab\t and \\ 2", decimal.Decimal("0.5")), rows

        def fails():
            with cursor.copy("COPY copied (id) FROM STDIN") as copy:
                copy.write("5000\n")
                raise KeyError

        try:
            fails()
        except (KeyError, psycopg.errors.QueryCanceled):
            pass

        def duplicate():
            with cursor.copy("COPY copied (id) FROM STDIN") as copy:
                copy.write("1\n")

        error = raises("23505", duplicate)
        assert "nothing was written" in (error.diag.message_hint or ""), error.diag.message_hint
        assert error.diag.message_detail == "Key (id)=(1) already exists.", error.diag.message_detail
    assert conn.execute("SELECT count(*) FROM copied").fetchone() == (5000,)


def two_tables(url):
    """Tables of a database that refer to each other, in transactions over both."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE DATABASE psycopg")
    url = url.rsplit("/", 1)[0] + "/psycopg"
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL UNIQUE, balance int CHECK (balance >= 0))")
        conn.execute("CREATE TABLE moves (id serial PRIMARY KEY, account int NOT NULL REFERENCES accounts, delta int NOT NULL)")
        conn.cursor().executemany("INSERT INTO accounts VALUES (%s, %s, 100)", [(1, "ada"), (2, "alan"), (3, "grace")])
    commits_and_rolls_back(url)
    violations(url)
    in_a_pipeline(url)
    begun_again(url)
    with psycopg.connect(url) as conn:
        moved = "SELECT coalesce(sum(delta), 0) FROM moves m WHERE m.account = a.id"
        wrong = conn.execute(f"SELECT id FROM accounts a WHERE balance <> 100 + ({moved})").fetchall()
        assert wrong == [], f"what accounts have is not what was moved: {wrong}"


def move(conn, key, delta):
    """Writes both tables. Done often enough that both statements are prepared at the server."""
    conn.execute("UPDATE accounts SET balance = balance + %s WHERE id = %s", (delta, key), prepare=True)
    conn.execute("INSERT INTO moves (account, delta) VALUES (%s, %s)", (key, delta), prepare=True)


def seen(url, key):
    with psycopg.connect(url) as conn:
        balance = conn.execute("SELECT balance FROM accounts WHERE id = %s", (key,)).fetchone()[0]
        return balance, conn.execute("SELECT count(*) FROM moves WHERE account = %s", (key,)).fetchone()[0]


def commits_and_rolls_back(url):
    with psycopg.connect(url) as conn:
        for _ in range(10):
            move(conn, 1, -5)
            move(conn, 2, 5)
        assert seen(url, 1) == (100, 0), "nothing is seen before the commit"
        conn.commit()
        assert seen(url, 1) == (50, 10) and seen(url, 2) == (150, 10)
        conn.execute("PREPARE balance_of (int) AS SELECT balance FROM accounts WHERE id = $1")
        move(conn, 1, -5)
        assert conn.execute("EXECUTE balance_of (1)").fetchone() == (45,), "a transaction sees what it has written"
        conn.rollback()
        assert seen(url, 1) == (50, 10), "nothing is left of what was rolled back"
        with conn.transaction():
            move(conn, 1, -1)
            try:
                with conn.transaction():  # a savepoint
                    move(conn, 1, -1)
                    move(conn, 2, 2)
                    raise KeyError
            except KeyError:
                pass
            move(conn, 2, 1)
        assert seen(url, 1) == (49, 11) and seen(url, 2) == (151, 11)


def violations(url):
    """Each is told with its code and its constraint; what else its transaction has written stays behind a savepoint, and goes
    without one."""
    wrong = [
        ("23503", "moves_account_fkey", "INSERT INTO moves (account, delta) VALUES (99, 1)"),
        ("23503", "moves_account_fkey", "DELETE FROM accounts WHERE id = 1"),
        ("23505", "accounts_pkey", "INSERT INTO accounts VALUES (1, 'again', 0)"),
        ("23505", "accounts_owner_key", "INSERT INTO accounts VALUES (4, 'ada', 0)"),
        ("23514", "accounts_balance_check", "UPDATE accounts SET balance = -1 WHERE id = 1"),
        ("23502", None, "INSERT INTO moves (account, delta) VALUES (1, NULL)"),
    ]
    with psycopg.connect(url) as conn:
        for sqlstate, constraint, statement in wrong:
            with conn.transaction():
                move(conn, 3, 1)

                def fails():
                    with conn.transaction():
                        conn.execute(statement)

                error = raises(sqlstate, fails)
                assert error.diag.constraint_name == constraint, (statement, error.diag.constraint_name)
        assert seen(url, 3) == (106, 6)

        def all_of_it():
            with conn.transaction():
                move(conn, 3, 1)
                conn.execute(wrong[0][2])

        raises("23503", all_of_it)
        assert seen(url, 3) == (106, 6)
        # What a transaction brings in order before its end is no violation.
        with conn.transaction():
            conn.execute("INSERT INTO accounts VALUES (5, 'short', 0)")
            conn.execute("INSERT INTO moves (account, delta) VALUES (5, 0)")
            conn.execute("DELETE FROM moves WHERE account = 5")
            conn.execute("DELETE FROM accounts WHERE id = 5")


def in_a_pipeline(url):
    with psycopg.connect(url) as conn:
        with conn.pipeline():
            for _ in range(5):
                move(conn, 1, 1)
        conn.commit()
        assert seen(url, 1) == (54, 16)


def begun_again(url):
    """Two transactions of one snapshot each that write one row: the second one is told so, and is done again."""
    tries = 0
    with psycopg.connect(url) as conn, psycopg.connect(url) as other:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        while True:
            tries += 1
            try:
                with conn.transaction():
                    (balance,) = conn.execute("SELECT balance FROM accounts WHERE id = 2").fetchone()
                    if tries == 1:
                        with other.transaction():
                            move(other, 2, 10)
                    conn.execute("UPDATE accounts SET balance = %s WHERE id = 2", (balance - 1,))
                    conn.execute("INSERT INTO moves (account, delta) VALUES (2, -1)")
                break
            except psycopg.errors.SerializationFailure:
                assert tries == 1, "nobody writes it any more"
    assert tries == 2, tries
    assert seen(url, 2) == (160, 13), seen(url, 2)


with psycopg.connect(URL, autocommit=True) as connection:
    assert connection.info.server_version >= 150000
    types(connection)
    more_types(connection)
    statements(connection)
    copies(connection)
transactions(URL)
two_tables(URL)
print("psycopg", psycopg.__version__, "ok")
