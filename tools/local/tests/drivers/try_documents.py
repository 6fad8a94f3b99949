"""SQLAlchemy's own documents against a cluster: python3 try_documents.py URL ARCHIVE

The archive is its source package, which has "ORM Quick Start" and the Unified Tutorial. Their statements are done as they stand
there, each document in a database of its own: only the address that they give `create_engine` is another one. What a
statement prints must be what its document says, in any order where no ORDER BY says one. The statements that SQLAlchemy sends
are not compared, since those of the documents are for SQLite.

What is printed otherwise, and what is refused, is in OTHERWISE with its reason; an entry there that is not needed is an error.
"""

import contextlib
import doctest
import io
import re
import sys
import tarfile
import traceback

import psycopg
import sqlalchemy
import sqlalchemy.orm

TUTORIAL = (
    "index engine dbapi_transactions metadata data data_insert data_select data_update orm_data_manipulation orm_related_objects"
)
DOCUMENTS = {
    "quick_start": ["orm/quickstart.rst"],
    "unified_tutorial": [f"tutorial/{name}.rst" for name in TUTORIAL.split()],
}
# By a part of the statement.
OTHERWISE = {
    "unified_tutorial": {
        "values().compile(engine)": "PostgreSQL's dialect adds RETURNING",
        "    result.all()\n": "json_each() with one column is SQLite's",
    },
}

url = sys.argv[1]
user, rest = url.removeprefix("postgres://").split("@")
hosts = "&".join(f"host={host}" for host in rest.split("/")[0].split(","))
create_engine = sqlalchemy.create_engine
checker = doctest.OutputChecker()
OPEN = "\0"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(text):
    """The statements of a document: source, what it prints, what it raises. What is printed is None where the document does not
    mark the end of the SQL that it shows there, or says that it differs."""
    kept, enabled = [], True
    for line in text.splitlines():
        switch = re.match(r"\.\. doctest-(enable|disable)", line)
        enabled = switch.group(1) == "enable" if switch else enabled
        kept.append(line if enabled else "")
    sent = r"\{(?:execsql|sql|opensql)\}.*?(\{stop\}(?: *\n *(?=[^ \n]))?|(?=\n *\n)|\Z)"
    text = re.sub(sent, lambda found: "" if found.group(1) else OPEN, "\n".join(kept) + "\n", flags=re.DOTALL)
    for example in doctest.DocTestParser().get_examples(re.sub(r"\{(?:stop|printsql)\}", "", text)):
        want = re.sub(r"^(BEGIN \(implicit\)|COMMIT|ROLLBACK)$", "", example.want, flags=re.MULTILINE)
        free = OPEN in want or example.options.get(doctest.SKIP)
        yield example.source, None if free else want, example.exc_msg


def alike(want, got):
    # Some documents have the value of `execute` among the SQL, which is not compared.
    want, got = (re.sub(r"<\S*CursorResult object at \S*>\n", "", text) for text in (want, got))
    words = [sorted(re.findall(r"\w+|[^\w\s]", text)) for text in (want, got)]
    return checker.check_output(want, got, FLAGS) or words[0] == words[1]


def fault(source, want, error, known):
    """What is wrong with what a statement does; nothing: it does what its document says."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(source, "statement", "single"), known)
    except Exception as found:
        if error is not None and type(found).__name__ == error.split(":")[0].split(".")[-1].strip():
            return None
        return "".join(traceback.format_exception_only(found))
    if error is not None:
        return f"nothing was raised, where the document has {error}"
    return None if want is None or alike(want, out.getvalue()) else f"it prints:\n{out.getvalue()}where the document has:\n{want}"


def run(database, names, source_of):
    """Goes through these documents, which build on each other; how many statements they have, and what is wrong."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    engines = []

    def engine_of(_address, **options):
        options["echo"] = False
        engines.append(create_engine(f"postgresql+psycopg://{user}@/{database}?{hosts}", **options))
        return engines[-1]

    sqlalchemy.create_engine = engine_of
    known, count, wrong, unused = {"__name__": "document"}, 0, [], dict(OTHERWISE.get(database, {}))
    for name in names:
        for source, want, error in examples(source_of(name)):
            count += 1
            found = fault(source, want, error, known)
            reasons = [part for part in unused if part in source] if found else []
            if reasons:
                print(f"otherwise, {unused.pop(reasons[0])}: {source.splitlines()[0]}")
            elif found:
                wrong.append(f"{name}: {source}{found}")
    wrong += [f"{database}: done as its document says: {part}" for part in unused]
    for session in known.values():
        if isinstance(session, sqlalchemy.orm.Session):
            session.close()
    for engine in engines:
        engine.dispose()
    return count, wrong


with tarfile.open(sys.argv[2]) as package:
    root = package.getnames()[0].split("/")[0]
    source_of = lambda name: package.extractfile(f"{root}/doc/build/{name}").read().decode()
    every = {database: run(database, names, source_of) for database, names in DOCUMENTS.items()}
for database, (count, wrong) in every.items():
    print(f"{database}: {count} statements")
    assert count > 20, "the documents have statements"
    for one in wrong:
        print(one)
assert not any(wrong for _, wrong in every.values())
print("SQLAlchemy's documents ok")
