"""Settings for Django's own tests of its bundled apps, in two databases, as these tests want them."""

import os

from django.db.backends.postgresql.features import DatabaseFeatures

# What is not there yet, by its reason. Django's runner skips these and says so.
DatabaseFeatures.django_test_skips = {
    "ALTER TABLE of a table that is there already, in a transaction that has written rows": {
        "contenttypes_tests.test_operations.ContentTypeOperationsTests.test_existing_content_type_rename_other_database",
    },
}

address = {
    "ENGINE": "django.db.backends.postgresql",
    "USER": os.environ["DB_USER"],
    "PASSWORD": os.environ["DB_PASSWORD"],
    "HOST": os.environ["DB_HOST"],
    "PORT": os.environ["DB_PORT"],
}
DATABASES = {"default": {"NAME": "suites", **address}, "other": {"NAME": "suites_other", **address}}
SECRET_KEY = "x" * 50
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TIME_ZONE = "UTC"
