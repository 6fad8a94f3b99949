"""Django's bundled apps (admin, auth, contenttypes, sessions) against a cluster: python3 try_django.py URL

`migrate`, unchanged, and again; then the tests in `bundled/bundled_tests.py`, which Django runs in a database that it makes and drops.
They are of our own, since a wheel of Django has none: `try_django_suites.py` runs those of its source package.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "bundled"))
user, rest = sys.argv[1].removeprefix("postgres://").split("@")
name, password = user.split(":")
hosts = [host.split(":") for host in rest.split("/")[0].split(",")]
os.environ.update(DB_USER=name, DB_PASSWORD=password, DB_HOST=hosts[0][0], DB_PORT=hosts[0][1], DJANGO_SETTINGS_MODULE="settings")

import django
import psycopg
from django.core.management import call_command

with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("CREATE DATABASE shop")
django.setup()
call_command("migrate", verbosity=0)
call_command("migrate", verbosity=0)
call_command("check", fail_level="WARNING", verbosity=0)
call_command("test", "bundled_tests", verbosity=1, interactive=False)
print("django works")
