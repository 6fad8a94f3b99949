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


with psycopg.connect(URL, autocommit=True) as connection:
    assert connection.info.server_version >= 150000
    types(connection)
    more_types(connection)
    statements(connection)
    copies(connection)
transactions(URL)
print("psycopg", psycopg.__version__, "ok")
