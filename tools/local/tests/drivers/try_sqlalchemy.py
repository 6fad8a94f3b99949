"""SQLAlchemy's ORM against a cluster: python3 try_sqlalchemy.py URL

A database of its own with tables that refer to each other, mapped with relationships in both directions, and nothing that says
how the tables are kept. `try_documents.py` does what SQLAlchemy's own documents show.
"""

import sys
from typing import List, Optional

import psycopg
from sqlalchemy import CheckConstraint, Column, ForeignKey, String, Table, UniqueConstraint
from sqlalchemy import create_engine, func, inspect, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.orm import aliased, backref, joinedload, mapped_column, relationship, selectinload
from sqlalchemy.orm.exc import StaleDataError


class Base(DeclarativeBase):
    pass


written = Table(
    "written",
    Base.metadata,
    Column("author_id", ForeignKey("author.id"), primary_key=True),
    Column("book_id", ForeignKey("book.id"), primary_key=True),
)


class Shelf(Base):
    __tablename__ = "shelf"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(40), unique=True)
    above_id: Mapped[Optional[int]] = mapped_column(ForeignKey("shelf.id"))
    version: Mapped[int] = mapped_column()

    books: Mapped[List["Book"]] = relationship(back_populates="shelf", cascade="all, delete-orphan", order_by="Book.title")
    below: Mapped[List["Shelf"]] = relationship(backref=backref("above", remote_side=[id]))

    __mapper_args__ = {"version_id_col": version}


class Author(Base):
    __tablename__ = "author"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (UniqueConstraint("shelf_id", "title", name="once"), CheckConstraint("pages > 0", name="some_pages"))

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    pages: Mapped[int] = mapped_column(default=1)
    shelf_id: Mapped[int] = mapped_column(ForeignKey("shelf.id"))

    shelf: Mapped["Shelf"] = relationship(back_populates="books")
    authors: Mapped[List["Author"]] = relationship(secondary=written, backref="books", order_by="Author.id")
    notes: Mapped[List["Note"]] = relationship(back_populates="book", cascade="all, delete", passive_deletes=True)


class Note(Base):
    __tablename__ = "note"

    id: Mapped[int] = mapped_column(primary_key=True)
    words: Mapped[str]
    book_id: Mapped[int] = mapped_column(ForeignKey("book.id", ondelete="CASCADE"), index=True)

    book: Mapped["Book"] = relationship(back_populates="notes")


user, rest = sys.argv[1].removeprefix("postgres://").split("@")
hosts = "&".join(f"host={host}" for host in rest.split("/")[0].split(","))  # several, as SQLAlchemy writes them
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("CREATE DATABASE library")
engine = create_engine(f"postgresql+psycopg://{user}@/library?{hosts}")
Base.metadata.create_all(engine)


def raises(kind, sqlstate, work):
    try:
        work()
    except kind as error:
        assert sqlstate is None or error.orig.sqlstate == sqlstate, (error.orig.sqlstate, error)
        return error
    raise AssertionError(f"nothing was refused with {kind}")


def count(session, kind):
    return session.scalar(select(func.count()).select_from(kind))


def made():
    """A graph of objects of all tables, written by one transaction; and one that is rolled back."""
    with Session(engine) as session:
        ada, alan = Author(name="Ada"), Author(name="Alan")
        shelf = Shelf(name="engines")
        shelf.books = [
            Book(title="Notes", pages=66, authors=[ada], notes=[Note(words="G"), Note(words="A")]),
            Book(title="Numbers", authors=[alan]),
        ]
        shelf.below.append(Shelf(name="lowest", books=[Book(title="Both", authors=[ada, alan])]))
        session.add(shelf)
        session.commit()
        assert sorted(book.title for book in ada.books) == ["Both", "Notes"] and shelf.below[0].above is shelf
    with Session(engine) as session:
        session.add(Shelf(name="lost", books=[Book(title="Lost", notes=[Note(words="lost")])]))
        session.flush()
        assert (count(session, Shelf), count(session, Book), count(session, Note)) == (3, 4, 3)
        session.rollback()
        assert (count(session, Shelf), count(session, Book), count(session, Note)) == (2, 3, 2)


def queries():
    with Session(engine) as session:
        joined = select(Author.name, Book.title).join(Book.authors).join(Book.shelf).where(Shelf.name == "engines")
        assert session.execute(joined.order_by(Book.title)).all() == [("Ada", "Notes"), ("Alan", "Numbers")]
        outer = select(Book.title, func.count(Note.id)).outerjoin(Book.notes).group_by(Book.id, Book.title).order_by(Book.title)
        assert session.execute(outer).all() == [("Both", 0), ("Notes", 2), ("Numbers", 0)]
        upper, lower = aliased(Shelf), aliased(Shelf)
        pairs = select(upper.name, lower.name).join(lower, upper.below)
        assert session.execute(pairs).all() == [("engines", "lowest")]
        alans = select(Book.title).where(Book.authors.any(name="Alan")).order_by(Book.title)
        assert session.scalars(alans).all() == ["Both", "Numbers"]
        assert session.scalars(select(Book.title).where(~Book.notes.any()).order_by(Book.title)).all() == ["Both", "Numbers"]
        assert session.scalars(select(Note.words).where(Note.book.has(Book.pages > 60)).order_by(Note.words)).all() == ["A", "G"]
        for how in (selectinload, joinedload):
            loaded = session.scalars(select(Shelf).options(how(Shelf.books)).order_by(Shelf.id)).unique().all()
            assert [len(shelf.books) for shelf in loaded] == [2, 1]
            session.expunge_all()
        shelves = select(Shelf.id).where(Shelf.name.like("e%"))
        pages = session.scalar(select(func.sum(Book.pages)).where(Book.shelf_id.in_(shelves)))
        assert pages == 67, pages
        page = select(Book).join(Book.shelf).order_by(Shelf.name.desc(), Book.title).limit(1).offset(1)
        assert session.scalars(page).one().title == "Notes"


def cascades():
    with Session(engine) as session:
        shelf = session.scalars(select(Shelf).filter_by(name="engines")).one()
        shelf.books.remove(shelf.books[1])  # an orphan is deleted, and its rows of the secondary table
        session.commit()
        assert count(session, Book) == 2 and session.scalar(select(func.count()).select_from(written)) == 3
        session.delete(shelf.books[0])  # its notes go by ON DELETE CASCADE
        session.commit()
        assert (count(session, Book), count(session, Note)) == (1, 0)
        below = shelf.below[0]
        session.delete(shelf)  # what lies below it has nothing above it then
        session.commit()
        assert below.above_id is None and [book.title for book in below.books] == ["Both"]


def violations():
    with Session(engine) as session:
        (shelf,) = session.scalars(select(Shelf)).all()
        key = shelf.id
        session.commit()
        rows = [
            ("23503", "book_shelf_id_fkey", Book(title="nowhere", shelf_id=key + 1000)),
            ("23505", "once", Book(title="Both", shelf_id=key)),
            ("23505", "shelf_name_key", Shelf(name="lowest")),
            ("23514", "some_pages", Book(title="thin", pages=0, shelf_id=key)),
            ("23502", None, Book(title=None, shelf_id=key)),
        ]
        for sqlstate, constraint, row in rows:
            # Within a savepoint: what else the transaction has written stays.
            author = Author(name=sqlstate)
            session.add(author)
            session.flush()

            def fails():
                with session.begin_nested():
                    session.add(row)

            error = raises(IntegrityError, sqlstate, fails)
            assert error.orig.diag.constraint_name == constraint, error.orig.diag.constraint_name
            session.commit()
            assert session.get(Author, author.id).name == sqlstate
        delete = Shelf.__table__.delete().where(Shelf.__table__.c.id == key)
        error = raises(IntegrityError, "23503", lambda: session.execute(delete) and session.commit())
        assert error.orig.diag.table_name == "book", error.orig.diag.table_name
        session.rollback()
        assert (count(session, Shelf), count(session, Book)) == (1, 1)


def others():
    """Who writes what another one has written meanwhile is told so, and does it again."""
    with Session(engine) as slow, Session(engine) as fast:
        shelf = slow.scalars(select(Shelf)).one()
        fast.scalars(select(Shelf)).one().name = "fast"
        fast.commit()
        shelf.name = "slow"
        try:  # READ COMMITTED: the version column says so
            slow.commit()
            raise AssertionError("an old version was overwritten")
        except StaleDataError:
            slow.rollback()
    tries = 0
    while True:
        tries += 1
        with Session(engine) as session:
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            try:
                book = session.scalars(select(Book)).one()
                if tries == 1:
                    with Session(engine) as other:
                        other.execute(update(Book).values(pages=Book.pages + 10))
                        other.commit()
                book.pages += 1
                session.add(Note(words="counted", book=book))
                session.commit()
                break
            except DBAPIError as error:
                assert error.orig.sqlstate == "40001", error
                session.rollback()
    assert tries == 2, tries
    with Session(engine) as session:
        assert (session.scalars(select(Book.pages)).one(), count(session, Note)) == (12, 1)


made()
queries()
cascades()
violations()
others()
assert set(inspect(engine).get_table_names()) == {"author", "book", "note", "shelf", "written"}
assert {key["referred_table"] for key in inspect(engine).get_foreign_keys("written")} == {"author", "book"}
Base.metadata.drop_all(engine)
assert inspect(engine).get_table_names() == []
engine.dispose()
print("SQLAlchemy ok")
