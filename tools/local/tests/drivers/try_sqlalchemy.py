"""SQLAlchemy's "ORM Quick Start" against a cluster: python3 try_sqlalchemy.py URL

The text is the tutorial's. What is not is marked with "adapted":
- A foreign key is a note here, so it says NOT ENFORCED; a table whose rows are written together has one partition.
- A transaction writes one partition, and so one table: there is a commit per table.
"""

import sys
from typing import List, Optional

from sqlalchemy import ForeignKey, ForeignKeyConstraint, String, create_engine, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.schema import CreateTable


@compiles(ForeignKeyConstraint)  # adapted
def not_enforced(constraint, compiler, **kw):
    return compiler.visit_foreign_key_constraint(constraint, **kw) + " NOT ENFORCED"


@compiles(CreateTable)  # adapted
def one_partition(create, compiler, **kw):
    return compiler.visit_create_table(create, **kw).rstrip() + " WITH (partitions = 1)"


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "user_account"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(30))
    fullname: Mapped[Optional[str]]

    addresses: Mapped[List["Address"]] = relationship(back_populates="user", cascade="all, delete-orphan")

    def __repr__(self) -> str:
        return f"User(id={self.id!r}, name={self.name!r}, fullname={self.fullname!r})"


class Address(Base):
    __tablename__ = "address"

    id: Mapped[int] = mapped_column(primary_key=True)
    email_address: Mapped[str]
    user_id: Mapped[int] = mapped_column(ForeignKey("user_account.id"))

    user: Mapped["User"] = relationship(back_populates="addresses")

    def __repr__(self) -> str:
        return f"Address(id={self.id!r}, email_address={self.email_address!r})"


user, rest = sys.argv[1].removeprefix("postgres://").split("@")
hosts, database = rest.split("/")
hosts = "&".join(f"host={host}" for host in hosts.split(","))  # several, as SQLAlchemy writes them
engine = create_engine(f"postgresql+psycopg://{user}@/{database}?{hosts}")
Base.metadata.create_all(engine)

with Session(engine) as session:
    spongebob = User(name="spongebob", fullname="Spongebob Squarepants")
    sandy = User(name="sandy", fullname="Sandy Cheeks")
    patrick = User(name="patrick", fullname="Patrick Star")
    session.add_all([spongebob, sandy, patrick])
    session.commit()
    # adapted: the addresses are given after the users are committed
    spongebob.addresses = [Address(email_address="spongebob@sqlalchemy.org")]
    sandy.addresses = [
        Address(email_address="sandy@sqlalchemy.org"),
        Address(email_address="sandy@squirrelpower.org"),
    ]
    session.commit()
    sandy_id = sandy.id  # adapted: numbers are handed out in blocks, so it need not be 2

session = Session(engine)
stmt = select(User).where(User.name.in_(["spongebob", "sandy"]))
assert sorted(user.name for user in session.scalars(stmt)) == ["sandy", "spongebob"]

stmt = (
    select(Address)
    .join(Address.user)
    .where(User.name == "sandy")
    .where(Address.email_address == "sandy@sqlalchemy.org")
)
sandy_address = session.scalars(stmt).one()
assert sandy_address.email_address == "sandy@sqlalchemy.org"

stmt = select(User).where(User.name == "patrick")
patrick = session.scalars(stmt).one()
patrick.addresses.append(Address(email_address="patrickstar@sqlalchemy.org"))
sandy_address.email_address = "sandy_cheeks@sqlalchemy.org"
session.commit()

sandy = session.get(User, sandy_id)
assert sandy.fullname == "Sandy Cheeks"
sandy.addresses.remove(sandy_address)
session.flush()
session.commit()  # adapted: before another table is written

session.delete(patrick)
try:
    session.commit()
    raise AssertionError("two tables were written in one transaction")
except Exception as error:
    assert getattr(error, "orig", None) is not None and error.orig.sqlstate == "0A000", error
    session.rollback()
# adapted: first the addresses, then the user
for address in list(patrick.addresses):
    session.delete(address)
session.commit()
session.delete(patrick)
session.commit()

assert sorted(session.scalars(select(User.name))) == ["sandy", "spongebob"]
left = sorted(session.scalars(select(Address.email_address)))
assert left == ["sandy@squirrelpower.org", "spongebob@sqlalchemy.org"], left
session.close()
Base.metadata.drop_all(engine)
print("SQLAlchemy ok")
