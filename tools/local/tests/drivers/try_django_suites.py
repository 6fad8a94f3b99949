"""Django's own tests of its bundled apps (admin, auth, contenttypes, sessions): python3 try_django_suites.py URL ARCHIVE

A wheel of Django has no tests, so they come from its source package, the archive, and are run unchanged by its own runner in
databases that it makes and drops. Left out are `auth_tests.test_hashers`, which computes for half a minute and asks no database;
`admin_views`, since one of its models has a column GENERATED ... STORED, which is refused here; and `admin_inlines`, `admin_docs`
and `admin_widgets` for their time. `bundled/suites.py` names single tests that are skipped, with the reason.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SUITES = """
    admin_changelist admin_custom_urls admin_filters admin_ordering admin_utils contenttypes_tests sessions_tests
    auth_tests.test_admin_multidb auth_tests.test_auth_backends auth_tests.test_basic auth_tests.test_checks
    auth_tests.test_context_processors auth_tests.test_decorators auth_tests.test_forms auth_tests.test_handlers
    auth_tests.test_login auth_tests.test_management auth_tests.test_middleware auth_tests.test_migrations auth_tests.test_mixins
    auth_tests.test_models auth_tests.test_remote_user auth_tests.test_signals auth_tests.test_templates auth_tests.test_tokens
    auth_tests.test_validators auth_tests.test_views
"""

user, rest = sys.argv[1].removeprefix("postgres://").split("@")
name, password = user.split(":")
host, port = rest.split("/")[0].split(",")[0].split(":")
address = {"DB_USER": name, "DB_PASSWORD": password, "DB_HOST": host, "DB_PORT": port}
settings = str(Path(__file__).parent / "bundled")
path = os.pathsep.join([settings, os.environ.get("PYTHONPATH", "")])

with tempfile.TemporaryDirectory() as folder:
    with tarfile.open(sys.argv[2]) as package:
        root = package.getnames()[0].split("/")[0]
        package.extractall(folder, [one for one in package.getmembers() if one.name.startswith(f"{root}/tests/")])
    runner = [sys.executable, "-B", "runtests.py", "--settings=suites", "--parallel=1", "--noinput", *SUITES.split()]
    tests = Path(folder) / root / "tests"
    ended = subprocess.run(runner, cwd=tests, env={**os.environ, **address, "PYTHONPATH": path}, stderr=subprocess.STDOUT)
sys.exit(ended.returncode)
