"""What SQLAlchemy's dialect for PostgreSQL sends, in a database of a cluster: python3 try_tutorial.py URL

Core and ORM in the order of SQLAlchemy's Unified Tutorial (`try_documents.py` has that one as it stands); behind it types, sequences
and statements that are PostgreSQL's own. Parts that are named in REFUSED must fail with SQLSTATE 0A000, and no other.
"""

import sys
from typing import List

import psycopg
from sqlalchemy import *
from sqlalchemy.exc import *
from sqlalchemy.orm import *

REFUSED = [
    "within_group",
]

user, rest = sys.argv[1].removeprefix("postgres://").split("@")
hosts, database = rest.split("/")
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("CREATE DATABASE tutorial")
hosts = "&".join(f"host={host}" for host in hosts.split(","))
engine = create_engine(f"postgresql+psycopg://{user}@/tutorial?{hosts}")
failed, refused = [], []


def part(work):
    try:
        work()
        print("ok", work.__name__)
    except NotSupportedError as error:
        refused.append(work.__name__)
        print("refused", work.__name__, str(error).split("\n")[0])
    except Exception as error:
        failed.append(work.__name__)
        print("FAILED", work.__name__, type(error).__name__, str(error).split("\n[SQL")[0])


@part
def transactions_and_dbapi():
    with engine.connect() as conn:
        assert conn.execute(text("select 'hello world'")).all() == [("hello world",)]
    with engine.connect() as conn:
        conn.execute(text("CREATE TABLE some_table (x int, y int)"))
        conn.execute(text("INSERT INTO some_table (x, y) VALUES (:x, :y)"), [{"x": 1, "y": 1}, {"x": 2, "y": 4}])
        conn.commit()
    with engine.begin() as conn:
        conn.execute(text("INSERT INTO some_table (x, y) VALUES (:x, :y)"), [{"x": 6, "y": 8}, {"x": 9, "y": 10}])
    with engine.connect() as conn:
        assert [(r.x, r.y) for r in conn.execute(text("SELECT x, y FROM some_table"))] == [(1,1),(2,4),(6,8),(9,10)]
        assert len(conn.execute(text("SELECT x, y FROM some_table WHERE y > :y"), {"y": 2}).all()) == 3
    stmt = text("SELECT x, y FROM some_table WHERE y > :y ORDER BY x, y")
    with Session(engine) as session:
        assert len(session.execute(stmt, {"y": 6}).all()) == 2
    with Session(engine) as session:
        session.execute(text("UPDATE some_table SET y=:y WHERE x=:x"), [{"x": 9, "y": 11}, {"x": 13, "y": 15}])
        session.commit()

metadata_obj = MetaData()
user_table = Table("user_account", metadata_obj, Column("id", Integer, primary_key=True), Column("name", String(30)), Column("fullname", String))
address_table = Table("address", metadata_obj, Column("id", Integer, primary_key=True),
    Column("user_id", ForeignKey("user_account.id"), nullable=False), Column("email_address", String, nullable=False))

@part
def metadata():
    metadata_obj.create_all(engine)
    metadata_obj.create_all(engine)

@part
def reflection():
    m = MetaData()
    some = Table("some_table", m, autoload_with=engine)
    assert [c.name for c in some.c] == ["x", "y"]
    a = Table("address", m, autoload_with=engine)
    assert [fk.target_fullname for fk in a.foreign_keys] == ["user_account.id"], a.foreign_keys
    insp = inspect(engine)
    assert set(insp.get_table_names()) >= {"address", "user_account"}
    insp.get_indexes("address"); insp.get_unique_constraints("address"); insp.get_check_constraints("address")
    insp.get_pk_constraint("address"); insp.get_view_names(); insp.get_sequence_names()
    assert [c["name"] for c in insp.get_columns("address")] == ["id", "user_id", "email_address"]
    m.reflect(engine)

@part
def inserts():
    with engine.connect() as conn:
        r = conn.execute(insert(user_table).values(name="spongebob", fullname="Spongebob Squarepants"))
        conn.commit(); assert r.inserted_primary_key == (1,), r.inserted_primary_key
    with engine.connect() as conn:
        conn.execute(insert(user_table), [{"name": "sandy", "fullname": "Sandy Cheeks"}, {"name": "patrick", "fullname": "Patrick Star"}])
        conn.commit()
    sub = select(user_table.c.id).where(user_table.c.name == bindparam("username")).scalar_subquery()
    with engine.connect() as conn:
        conn.execute(insert(address_table).values(user_id=sub), [
            {"username": "spongebob", "email_address": "spongebob@sqlalchemy.org"},
            {"username": "sandy", "email_address": "sandy@sqlalchemy.org"},
            {"username": "sandy", "email_address": "sandy@squirrelpower.org"}])
        conn.commit()
    with engine.connect() as conn:
        s = insert(address_table).returning(address_table.c.id, address_table.c.email_address)
        conn.execute(s.values(user_id=1, email_address="x@y"))
        sel = select(user_table.c.id, user_table.c.name + "@aol.com")
        r = conn.execute(insert(address_table).from_select(["user_id", "email_address"], sel).returning(address_table.c.id, address_table.c.email_address))
        assert len(r.all()) == 3

u, a = user_table, address_table
class Base(DeclarativeBase): pass
class User(Base):
    __table__ = user_table
    addresses: Mapped[List["Address"]] = relationship(back_populates="user")
class Address(Base):
    __table__ = address_table
    user: Mapped["User"] = relationship(back_populates="addresses")

def q(stmt):
    with engine.connect() as conn: return conn.execute(stmt).all()
@part
def select_basic():
    assert q(select(u).where(u.c.name == "spongebob")) == [(1, "spongebob", "Spongebob Squarepants")]
    assert q(select(("Username: " + u.c.name).label("username")).order_by(u.c.name))[0] == ("Username: patrick",)
    q(select(text("'some phrase'"), u.c.name).order_by(u.c.name))
    q(select(literal_column("'some phrase'").label("p"), u.c.name).order_by(u.c.name))
    q(select(a.c.email_address).where(u.c.name == "squidward", a.c.user_id == u.c.id))
    q(select(a.c.email_address).where(and_(or_(u.c.name == "squidward", u.c.name == "sandy"), a.c.user_id == u.c.id)))
    q(select(u).filter_by(name="spongebob", fullname="Spongebob Squarepants"))
    assert len(q(select(u.c.name, a.c.email_address).join_from(u, a))) == 3
    q(select(a.c.email_address).select_from(u).join(a, u.c.id == a.c.user_id))
    q(select(func.count("*")).select_from(u))
    q(select(u).join(a, isouter=True)); q(select(u).join(a, full=True))
    q(select(u).order_by(u.c.name.desc()))
@part
def group_alias_subquery():
    assert dict(q(select(u.c.name, func.count(a.c.id).label("count")).join(a).group_by(u.c.name).having(func.count(a.c.id) > 1))) == {"sandy": 2}
    q(select(a.c.user_id, func.count(a.c.id).label("num_addresses")).group_by("user_id").order_by("user_id", desc("num_addresses")))
    u1, u2 = u.alias(), u.alias()
    q(select(u1.c.name, u2.c.name).join_from(u1, u2, u1.c.id > u2.c.id))
    sub = select(func.count(a.c.id).label("count"), a.c.user_id).group_by(a.c.user_id).subquery()
    q(select(u.c.name, u.c.fullname, sub.c.count).join_from(u, sub))
    cte = select(func.count(a.c.id).label("count"), a.c.user_id).group_by(a.c.user_id).cte()
    q(select(u.c.name, u.c.fullname, cte.c.count).join_from(u, cte))
@part
def orm_aliased():
    s1 = select(Address).where(~Address.email_address.like("%@aol.com")).subquery()
    al = aliased(Address, s1)
    with Session(engine) as s:
        assert len(s.execute(select(User, al).join_from(User, al).order_by(User.id, al.id)).all()) == 3
@part
def scalar_lateral():
    sub = select(func.count(a.c.id)).where(u.c.id == a.c.user_id).scalar_subquery().correlate(u)
    q(select(u.c.name, sub.label("address_count")))
    q(select(u.c.name, a.c.email_address, sub.label("c")).join_from(u, a).order_by(u.c.id, a.c.id))
@part
def lateral():
    lat = select(func.count(a.c.id).label("address_count"), a.c.email_address, a.c.user_id).where(u.c.id == a.c.user_id).group_by(a.c.email_address, a.c.user_id).lateral()
    assert len(q(select(u.c.name, lat.c.address_count, lat.c.email_address).join_from(u, lat).order_by(u.c.id, lat.c.email_address))) == 3
@part
def unions_exists():
    s1, s2 = select(u).where(u.c.name == "sandy"), select(u).where(u.c.name == "spongebob")
    un = union_all(s1, s2); assert len(q(un)) == 2
    sq = un.subquery(); q(select(sq.c.name, a.c.email_address).join_from(a, sq).order_by(sq.c.name, a.c.email_address))
    with Session(engine) as s:
        st = select(User).from_statement(union_all(select(User).where(User.name == "sandy"), select(User).where(User.name == "spongebob")))
        assert len(s.scalars(st).all()) == 2
        us = un.subquery(); s.scalars(select(aliased(User, us)).order_by(us.c.id)).all()
    ex = select(func.count(a.c.id)).where(u.c.id == a.c.user_id).group_by(a.c.user_id).having(func.count(a.c.id) > 1).exists()
    assert q(select(u.c.name).where(ex)) == [("sandy",)]
    q(select(u.c.name).where(~select(a.c.id).where(u.c.id == a.c.user_id).exists()))
@part
def functions():
    q(select(func.count()).select_from(u)); q(select(func.lower("A String With Much UPPERCASE"))); q(select(func.now()))
    q(select(func.coalesce(u.c.name, "")), ); q(select(func.max(u.c.name)))
@part
def window():
    q(select(func.row_number().over(partition_by=u.c.name), u.c.name, a.c.email_address).select_from(u).join(a))
    q(select(u.c.name, a.c.email_address, func.count().over(order_by=u.c.name)).select_from(u).join(a))
    q(select(func.sum(u.c.id).over(rows=(None, 0), order_by=u.c.id)))
@part
def filters():
    q(select(func.count(a.c.email_address).filter(u.c.name == "sandy"), func.count(a.c.email_address).filter(u.c.name == "spongebob")).select_from(u).join(a))
@part
def within_group():
    q(select(func.percentile_cont(0.5).within_group(u.c.id)))
@part
def column_valued():
    q(select(func.generate_series(1, 3).column_valued("x")))
@part
def casts():
    q(select(cast(u.c.id, String))); q(select(cast("{'a': 5}", String)))
@part
def json_cast():
    q(select(cast('{"a": "b"}', JSON)["a"]))
@part
def updates():
    with engine.begin() as conn:
        conn.execute(update(u).where(u.c.name == "patrick").values(fullname="Patrick the Star"))
        conn.execute(update(u).values(fullname="Username: " + u.c.name))
        conn.execute(update(u).where(u.c.name == bindparam("oldname")).values(name=bindparam("newname")), [{"oldname": "jack", "newname": "ed"}, {"oldname": "wendy", "newname": "mary"}])
        sub = select(a.c.email_address).where(a.c.user_id == u.c.id).order_by(a.c.id).limit(1).scalar_subquery()
        conn.execute(update(u).values(fullname=sub))
        r = conn.execute(update(u).where(u.c.name == "patrick").values(fullname="Patrick Star").returning(u.c.id, u.c.name)); assert r.rowcount == 1
@part
def update_from():
    with engine.begin() as conn:
        conn.execute(update(u).where(u.c.id == a.c.user_id).where(a.c.email_address == "patrick@aol.com").values(fullname="Pat"))
        d = update(u).values(fullname="x").where(u.c.id == a.c.user_id)
        conn.execute(d)
@part
def deletes():
    with engine.begin() as conn:
        r = conn.execute(delete(u).where(u.c.name == "patrick").returning(u.c.id, u.c.name)); assert r.all() == [(3, "patrick")]
        conn.execute(insert(u).values(name="patrick", fullname="Patrick Star"))
@part
def delete_using():
    with engine.begin() as conn:
        conn.execute(delete(u).where(u.c.id == a.c.user_id).where(a.c.email_address == "nobody@aol.com"))
@part
def orm_unit_of_work():
    session = Session(engine)
    squidward, krabs = User(name="squidward", fullname="Squidward Tentacles"), User(name="ehkrabs", fullname="Eugene H. Krabs")
    session.add(squidward); session.add(krabs); session.flush(); assert squidward.id and krabs.id
    assert session.get(User, squidward.id) is squidward
    session.commit()
    sandy = session.execute(select(User).filter_by(name="sandy")).scalar_one()
    sandy.fullname = "Sandy Squirrel"; assert session.execute(select(User.fullname).where(User.name == "sandy")).scalar_one() == "Sandy Squirrel"
    pat = session.execute(select(User).filter_by(name="patrick")).scalars().first()
    session.delete(pat); session.execute(select(User).where(User.name == "patrick")).first()
    session.rollback(); assert pat in session
    session.close()
@part
def relationships():
    s = Session(engine)
    u1 = User(name="pkrabs", fullname="Pearl Krabs"); u1.addresses.append(Address(email_address="pearl.krabs@gmail.com"))
    a2 = Address(email_address="pearl@aol.com", user=u1); s.add(u1); s.commit()
    assert [x.email_address for x in u1.addresses] == ["pearl.krabs@gmail.com", "pearl@aol.com"]
    s.execute(select(Address.email_address).select_from(User).join(User.addresses)).all()
    for x in s.scalars(select(User).options(selectinload(User.addresses)).order_by(User.id)): x.addresses
    for x in s.scalars(select(Address).options(joinedload(Address.user, innerjoin=True)).order_by(Address.id)): x.user
    s.scalars(select(Address).join(Address.user).where(User.name == "pkrabs").options(contains_eager(Address.user)).order_by(Address.id)).all()
    s.scalars(select(User).where(User.addresses.any(Address.email_address == "pearl@aol.com"))).all()
    s.execute(select(User.fullname).where(~User.addresses.any())).all()
    s.execute(select(Address.email_address).where(Address.user.has(User.name == "pkrabs"))).all()
    with s.begin_nested(): s.add(User(name="nested"))
    s.delete(s.scalars(select(Address).where(Address.email_address == "pearl@aol.com")).one()); s.commit()
    try:
        with s.begin_nested():
            s.add(Address(email_address="z", user_id=9999)); s.flush()
        raise AssertionError("no IntegrityError")
    except IntegrityError: pass
    s.commit(); s.close()
@part
def bulk_orm():
    with Session(engine) as s:
        ids = s.scalars(insert(User).returning(User), [{"name": f"n{i}", "fullname": "x"} for i in range(50)]).all(); assert len(ids) == 50
        s.execute(update(User), [{"id": ids[0].id, "fullname": "one"}, {"id": ids[1].id, "fullname": "two"}])
        s.execute(update(User).where(User.name.in_(["n1", "n2"])).values(fullname="in"))
        s.execute(delete(User).where(User.name.like("n%"))); s.commit()
    from sqlalchemy.dialects.postgresql import insert as pginsert
    with engine.begin() as c:
        st = pginsert(u).values(id=1, name="again"); c.execute(st.on_conflict_do_update(index_elements=["id"], set_=dict(name=st.excluded.name)))
@part
def server_side_cursor():
    with engine.connect() as c:
        r = c.execution_options(stream_results=True, yield_per=2).execute(select(u).order_by(u.c.id)); assert len(list(r)) >= 4
@part
def types():
    import datetime, decimal, uuid
    m = MetaData()
    t = Table("some_types", m, Column("id", Integer, primary_key=True), Column("i", BigInteger), Column("f", Float), Column("n", Numeric(10,2)), Column("b", Boolean),
      Column("d", Date), Column("ts", DateTime), Column("tz", DateTime(timezone=True)), Column("x", LargeBinary), Column("tx", Text), Column("j", JSON), Column("en", Enum("a","b",native_enum=False)))
    m.drop_all(engine); m.create_all(engine)
    with engine.begin() as c:
        c.execute(insert(t).values(i=1,f=1.5,n=decimal.Decimal("1.25"),b=True,d=datetime.date(2024,1,2),ts=datetime.datetime(2024,1,2,3,4,5),tz=datetime.datetime(2024,1,2,3,4,5,tzinfo=datetime.timezone.utc),x=b"ab",tx="t",j={"a":[1]},en="a"))
        r = c.execute(select(t)).one(); assert r.n == decimal.Decimal("1.25") and r.j == {"a":[1]} and r.ts == datetime.datetime(2024,1,2,3,4,5), r
    m.drop_all(engine)
@part
def more_types():
    import datetime, uuid
    m = MetaData()
    t = Table("more_types", m, Column("id", Uuid, primary_key=True), Column("r", REAL), Column("tm", Time), Column("iv", Interval))
    m.drop_all(engine); m.create_all(engine)
    k = uuid.uuid4()
    with engine.begin() as c:
        c.execute(insert(t).values(id=k, r=1.5, tm=datetime.time(3,4,5), iv=datetime.timedelta(days=1, seconds=5)))
        r = c.execute(select(t)).one(); assert r.id == k and r.tm == datetime.time(3,4,5) and r.iv == datetime.timedelta(days=1, seconds=5), r
    m.drop_all(engine)
@part
def arrays():
    from sqlalchemy.dialects.postgresql import ARRAY
    m = MetaData(); t = Table("array_types", m, Column("id", Integer, primary_key=True), Column("xs", ARRAY(Integer)), Column("ss", ARRAY(String)))
    m.drop_all(engine); m.create_all(engine)
    with engine.begin() as c:
        c.execute(insert(t).values(xs=[1,2], ss=["a","b"])); r = c.execute(select(t)).one(); assert r.xs == [1,2] and r.ss == ["a","b"]
        assert len(c.execute(select(t).where(t.c.xs.any(2))).all()) == 1
    m.drop_all(engine)
@part
def recursive():
    c = select(literal(1).label("n")).cte(recursive=True); c = c.union_all(select(c.c.n + 1).where(c.c.n < 5)); assert len(q(select(c))) == 5
@part
def sequences():
    m = MetaData(); seq = Sequence("some_seq", start=10, metadata=m)
    t = Table("with_seq", m, Column("id", Integer, seq, server_default=seq.next_value(), primary_key=True), Column("x", Integer))
    m.drop_all(engine); m.create_all(engine)
    with engine.begin() as c:
        assert c.execute(insert(t).values(x=1)).inserted_primary_key == (10,); assert c.scalar(seq) == 11
    m.drop_all(engine)
@part
def identity_and_indexes():
    m = MetaData()
    t = Table("ident", m, Column("id", Integer, Identity(start=5, increment=2), primary_key=True), Column("x", Integer, index=True), Column("y", String, unique=True), CheckConstraint("x > 0"))
    m.drop_all(engine); m.create_all(engine)
    with engine.begin() as c: assert c.execute(insert(t).values(x=1)).inserted_primary_key == (5,)
    assert len(inspect(engine).get_indexes("ident")) == 2
    m.drop_all(engine)
@part
def schemas_and_distinct():
    q(select(u.c.name).distinct(u.c.name).order_by(u.c.name, u.c.id)); 
@part
def for_update():
    with Session(engine) as s:
        s.execute(select(User).with_for_update().where(User.id == 1)).all(); s.execute(select(User).with_for_update(skip_locked=True).where(User.id == 1)).all(); s.commit()
assert not failed, failed
assert sorted(refused) == sorted(REFUSED), refused
