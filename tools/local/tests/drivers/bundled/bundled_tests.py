from django.contrib.admin.models import LogEntry
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Exists, F, OuterRef, Q, Subquery
from django.db.models.functions import Lower, Upper, Length, Concat, TruncDay
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

User = get_user_model()


class AuthTests(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.boss = User.objects.create_superuser("boss", "boss@example.com", "secret")
        cls.user = User.objects.create_user("user", "user@example.com", "word", first_name="U")

    def test_login(self):
        self.assertIsNone(authenticate(username="user", password="no"))
        self.assertEqual(authenticate(username="user", password="word"), self.user)
        self.assertTrue(self.client.login(username="user", password="word"))
        self.assertEqual(Session.objects.count(), 1)

    def test_permissions(self):
        group = Group.objects.create(name="editors")
        add = Permission.objects.get(codename="add_user")
        group.permissions.add(add, *Permission.objects.filter(content_type__app_label="auth"))
        self.user.groups.add(group)
        self.assertTrue(User.objects.get(pk=self.user.pk).has_perm("auth.add_user"))
        self.assertEqual(set(User.objects.with_perm("auth.add_user", backend="django.contrib.auth.backends.ModelBackend")), {self.boss, self.user})
        group.permissions.clear()
        self.user.groups.set([])
        group.delete()

    def test_unique(self):
        with self.assertRaises(IntegrityError), transaction.atomic():
            User.objects.create_user("user")
        self.assertEqual(User.objects.filter(username__iexact="USER").count(), 1)

    def test_queries(self):
        User.objects.bulk_create([User(username=f"n{i}", last_name=str(i % 3)) for i in range(20)])
        self.assertEqual(User.objects.filter(username__startswith="n1").count(), 11)
        self.assertEqual(User.objects.filter(Q(username__contains="n1") | Q(username__in=["boss"])).count(), 12)
        rows = User.objects.filter(username__startswith="n").values("last_name").annotate(n=Count("id")).order_by("last_name")
        self.assertEqual([(r["last_name"], r["n"]) for r in rows], [("0", 7), ("1", 7), ("2", 6)])
        User.objects.filter(username__startswith="n").update(first_name=Upper("username"), last_name=Concat("last_name", "username"))
        self.assertEqual(User.objects.get(username="n7").last_name, "1n7")
        User.objects.annotate(l=Lower("first_name"), len=Length("username"), day=TruncDay("date_joined")).filter(len__gt=2).order_by("-l")[:5].count()
        sub = Group.objects.filter(user=OuterRef("pk"))
        self.assertEqual(User.objects.filter(~Exists(sub)).count(), 22)
        User.objects.annotate(g=Subquery(sub.values("name")[:1])).order_by("g", "pk").first()
        list(User.objects.select_related().prefetch_related("groups", "user_permissions").order_by("pk").iterator(chunk_size=5))
        self.assertEqual(User.objects.in_bulk([self.boss.pk]), {self.boss.pk: self.boss})
        users = list(User.objects.filter(username__startswith="n"))
        for user in users:
            user.first_name = "bulk"
        User.objects.bulk_update(users, ["first_name"])
        self.assertEqual(User.objects.filter(first_name="bulk").count(), 20)
        User.objects.bulk_create([User(username="n1")], ignore_conflicts=True)
        User.objects.bulk_create([User(username="n1", first_name="up")], update_conflicts=True, unique_fields=["username"], update_fields=["first_name"])
        self.assertEqual(User.objects.get(username="n1").first_name, "up")
        self.assertEqual(User.objects.filter(username__regex="^n[0-4]$").count(), 5)
        self.assertEqual(User.objects.filter(date_joined__year=timezone.now().year).count(), 22)
        self.assertEqual(len(User.objects.dates("date_joined", "month")), 1)
        self.assertEqual(User.objects.exclude(username="boss").aggregate(n=Count("id"))["n"], 21)
        User.objects.filter(username="n1").union(User.objects.filter(username="n2")).count()
        self.assertEqual(User.objects.select_for_update().get(username="n3").username, "n3")
        deleted, _ = User.objects.filter(username__startswith="n").delete()
        self.assertEqual(deleted, 20)
        user, made = User.objects.get_or_create(username="again")
        user, made = User.objects.update_or_create(username="again", defaults={"first_name": "x"})
        self.assertFalse(made)

    def test_savepoints(self):
        with transaction.atomic():
            Group.objects.create(name="one")
            try:
                with transaction.atomic():
                    Group.objects.create(name="two")
                    raise ValueError
            except ValueError:
                pass
        self.assertEqual([g.name for g in Group.objects.all()], ["one"])


class AdminTests(TestCase):
    def setUp(self):
        self.boss = User.objects.create_superuser("boss", "boss@example.com", "secret")
        self.client.force_login(self.boss)

    def test_pages(self):
        for page in ["/admin/", "/admin/auth/user/", "/admin/auth/user/?q=bo&is_staff__exact=1&o=-1", "/admin/auth/group/", "/admin/auth/user/add/"]:
            self.assertEqual(self.client.get(page).status_code, 200, page)

    def test_changes(self):
        made = self.client.post("/admin/auth/group/add/", {"name": "made", "permissions": [Permission.objects.first().pk]})
        self.assertEqual(made.status_code, 302)
        group = Group.objects.get(name="made")
        changed = self.client.post(f"/admin/auth/group/{group.pk}/change/", {"name": "other"})
        self.assertEqual(changed.status_code, 302)
        self.assertEqual(self.client.get(f"/admin/auth/group/{group.pk}/history/").status_code, 200)
        gone = self.client.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
        self.assertEqual((gone.status_code, Group.objects.count(), LogEntry.objects.count()), (302, 0, 3))
        user = self.client.post("/admin/auth/user/add/", {"username": "neu", "password1": "Xy12345678!", "password2": "Xy12345678!", "usable_password": "true"})
        self.assertEqual(user.status_code, 302)
        action = self.client.post("/admin/auth/user/", {"action": "delete_selected", "_selected_action": [User.objects.get(username="neu").pk], "post": "yes"})
        self.assertEqual((action.status_code, User.objects.count()), (302, 1))


class ContentTypeTests(TestCase):
    def test_types(self):
        kind = ContentType.objects.get_for_model(User)
        self.assertEqual(kind.model_class(), User)
        with self.assertRaises(IntegrityError), transaction.atomic():
            ContentType.objects.create(app_label=kind.app_label, model=kind.model)
        other = ContentType.objects.create(app_label="x", model="y")
        Permission.objects.create(content_type=other, codename="c", name="n")
        other.delete()
        self.assertFalse(Permission.objects.filter(codename="c").exists())


class SessionTests(TestCase):
    def test_store(self):
        store = SessionStore()
        store["a"] = [1, "b"]
        store.save()
        self.assertEqual(SessionStore(store.session_key)["a"], [1, "b"])
        store.cycle_key()
        store.set_expiry(-10)
        store.save()
        SessionStore.clear_expired()
        self.assertEqual(Session.objects.count(), 0)


class Committed(TransactionTestCase):
    reset_sequences = True

    def test_commits(self):
        group = Group.objects.create(name="kept")
        self.assertEqual(group.pk, 1)
        with self.assertRaises(IntegrityError):
            with transaction.atomic():
                Group.objects.create(name="more")
                Group.objects.create(name="kept")
        self.assertEqual(Group.objects.count(), 1)
        seen = []
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append(1))
        self.assertEqual(seen, [1])

    def test_introspection(self):
        with connection.cursor() as cursor:
            names = connection.introspection.table_names(cursor)
            self.assertIn("auth_user", names)
            found = connection.introspection.get_constraints(cursor, "auth_user_groups")
            self.assertEqual(sum(1 for one in found.values() if one["foreign_key"]), 2)
            connection.introspection.get_table_description(cursor, "auth_user")
            connection.introspection.get_sequences(cursor, "auth_user")
            connection.introspection.get_primary_key_column(cursor, "auth_user")
