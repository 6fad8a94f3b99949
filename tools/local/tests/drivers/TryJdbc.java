// pgjdbc against a cluster: java -cp postgresql.jar TryJdbc.java HOSTS PASSWORD

import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PSQLException;

public class TryJdbc {
    interface Work {
        void run() throws Exception;
    }

    static void check(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void refused(String state, Work work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            check(state.equals(error.getSQLState()), error.getSQLState() + " " + error.getMessage());
            return;
        }
        throw new AssertionError("nothing was refused with " + state);
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "understudy");
        properties.setProperty("password", args[1]);
        String url = "jdbc:postgresql://" + args[0] + "/understudy";
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            statements(connection);
            types(connection);
            moreTypes(connection);
            generated(connection);
            copies(connection);
            metadata(connection);
            transactions(connection);
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE DATABASE jdbc");
            }
        }
        url = "jdbc:postgresql://" + args[0] + "/jdbc";
        try (Connection one = DriverManager.getConnection(url, properties);
                Connection other = DriverManager.getConnection(url, properties)) {
            twoTables(one);
            commitsAndRollsBack(one, other);
            savepoints(one, other);
            batches(one, other);
            violations(one);
            begunAgain(one, other);
            try (Statement statement = one.createStatement()) {
                ResultSet wrong = statement.executeQuery("SELECT count(*) FROM accounts a WHERE balance <> 100 + "
                    + "(SELECT coalesce(sum(delta), 0) FROM moves m WHERE m.account = a.id)");
                check(wrong.next() && wrong.getInt(1) == 0, "what accounts have is what was moved");
            }
        }
        System.out.println("pgjdbc ok");
    }

    /** Often enough that the driver prepares on the server and goes over to binary. */
    static void statements(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE jdbc (id int PRIMARY KEY, name varchar(40), n bigint) WITH (partitions = 1)");
            check(statement.executeUpdate("INSERT INTO jdbc VALUES (0, 'zero', 0)") == 1, "one row");
        }
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc VALUES (?, ?, ?)")) {
            for (int id = 1; id < 20; id++) {
                insert.setInt(1, id);
                insert.setString(2, "name " + id);
                insert.setLong(3, id * 10L);
                check(insert.executeUpdate() == 1, id);
            }
            insert.setInt(1, 5);
            refused("23505", insert::executeUpdate);
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT name, n FROM jdbc WHERE id = ?")) {
            for (int id = 1; id < 20; id++) {
                select.setInt(1, id);
                ResultSet row = select.executeQuery();
                check(row.next() && row.getString(1).equals("name " + id) && row.getLong("n") == id * 10L, id);
                check(!row.next(), "one row");
            }
            // Of another type than the column.
            select.setLong(1, 7);
            ResultSet row = select.executeQuery();
            check(row.next() && row.getString(1).equals("name 7"), "bigint for int");
        }
        try (PreparedStatement update = connection.prepareStatement("UPDATE jdbc SET n = n + ? WHERE id = ?")) {
            update.setLong(1, 5);
            update.setInt(2, 7);
            check(update.executeUpdate() == 1, "one row");
        }
        try (Statement statement = connection.createStatement()) {
            ResultSet sum = statement.executeQuery("SELECT sum(n), count(*) FROM jdbc");
            check(sum.next() && sum.getLong(1) == 1905 && sum.getInt(2) == 20, "the sum");
            refused("42P01", () -> statement.executeQuery("SELECT * FROM nothing"));
            refused("42601", () -> statement.executeQuery("SELEC 1"));
        }
    }

    static void types(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE kinds_j (id int PRIMARY KEY, num numeric(12, 3), real float8, truth boolean, day date, "
                + "at timestamptz, raw bytea)");
        }
        OffsetDateTime moment = OffsetDateTime.parse("2024-02-29T12:30:15.250Z");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO kinds_j VALUES (?, ?, ?, ?, ?, ?, ?)")) {
            insert.setInt(1, 1);
            insert.setBigDecimal(2, new BigDecimal("123.456"));
            insert.setDouble(3, 0.25);
            insert.setBoolean(4, true);
            insert.setDate(5, Date.valueOf("1815-12-10"));
            insert.setObject(6, moment);
            insert.setBytes(7, new byte[] {0, -1});
            insert.executeUpdate();
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM kinds_j WHERE id = ?")) {
            for (int round = 0; round < 10; round++) {
                select.setInt(1, 1);
                ResultSet row = select.executeQuery();
                check(row.next(), "a row");
                check(row.getBigDecimal("num").compareTo(new BigDecimal("123.456")) == 0, row.getBigDecimal("num"));
                check(row.getDouble("real") == 0.25 && row.getBoolean("truth"), "float and boolean");
                check(row.getDate("day").toString().equals("1815-12-10"), row.getDate("day"));
                check(row.getObject("at", OffsetDateTime.class).isEqual(moment), row.getString("at"));
                check(row.getBytes("raw")[1] == -1, "bytes");
            }
        }
    }

    static void moreTypes(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE marks_j (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), r real, t time, n int[])");
        }
        UUID key = UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO marks_j VALUES (?, ?, ?, ?)")) {
            insert.setObject(1, key);
            insert.setFloat(2, 0.25f);
            insert.setObject(3, LocalTime.of(4, 5, 6));
            insert.setArray(4, connection.createArrayOf("int4", new Integer[] {1, 2}));
            insert.executeUpdate();
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM marks_j WHERE id = ?")) {
            for (int round = 0; round < 10; round++) {
                select.setObject(1, key);
                ResultSet row = select.executeQuery();
                check(row.next(), "a row");
                check(row.getObject("id", UUID.class).equals(key) && row.getFloat("r") == 0.25f, row.getString("id"));
                check(row.getObject("t", LocalTime.class).equals(LocalTime.of(4, 5, 6)), row.getString("t"));
                check(((Integer[]) row.getArray("n").getArray())[1] == 2, row.getString("n"));
            }
        }
    }

    static void generated(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE made (id bigserial PRIMARY KEY, name text) WITH (partitions = 1)");
        }
        String insert = "INSERT INTO made (name) VALUES (?)";
        try (PreparedStatement statement = connection.prepareStatement(insert, Statement.RETURN_GENERATED_KEYS)) {
            statement.setString(1, "x");
            statement.executeUpdate();
            ResultSet keys = statement.getGeneratedKeys();
            check(keys.next() && keys.getLong("id") > 0, "a key");
        }
    }

    static void copies(Connection connection) throws Exception {
        CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE copied_j (id bigint PRIMARY KEY, name text)");
        }
        StringBuilder rows = new StringBuilder();
        for (int id = 0; id < 3000; id++) {
            rows.append(id).append(",\"name, ").append(id).append("\"\n");
        }
        check(copies.copyIn("COPY copied_j FROM STDIN WITH (FORMAT csv)", new StringReader(rows.toString())) == 3000, "rows");
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        check(copies.copyOut("COPY (SELECT * FROM copied_j WHERE id < 2 ORDER BY id) TO STDOUT CSV", out) == 2, "rows");
        String text = out.toString(StandardCharsets.UTF_8);
        check(text.equals("0,\"name, 0\"\n1,\"name, 1\"\n"), text);
        refused("22P02", () -> copies.copyIn("COPY copied_j FROM STDIN", new StringReader("x\ty\n")));
        try (Statement statement = connection.createStatement()) {
            ResultSet count = statement.executeQuery("SELECT count(*) FROM copied_j");
            check(count.next() && count.getLong(1) == 3000, "the connection is in step");
        }
    }

    static void metadata(Connection connection) throws Exception {
        check(connection.getMetaData().getDatabaseMajorVersion() == 15, "the version");
        ResultSet tables = connection.getMetaData().getTables(null, "public", "jdbc", new String[] {"TABLE"});
        check(tables.next() && tables.getString("TABLE_NAME").equals("jdbc") && !tables.next(), "one table");
        ResultSet columns = connection.getMetaData().getColumns(null, "public", "jdbc", "%");
        StringBuilder names = new StringBuilder();
        while (columns.next()) {
            names.append(columns.getString("COLUMN_NAME")).append(' ').append(columns.getString("TYPE_NAME")).append(';');
        }
        check(names.toString().equals("id int4;name varchar;n int8;"), names);
        ResultSet keys = connection.getMetaData().getPrimaryKeys(null, "public", "jdbc");
        check(keys.next() && keys.getString("COLUMN_NAME").equals("id"), "the key");
    }

    static void transactions(Connection connection) throws Exception {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc VALUES (100, 'kept', 0)");
            statement.executeUpdate("UPDATE jdbc SET n = 1 WHERE id = 100");
            connection.commit();
            statement.executeUpdate("INSERT INTO jdbc VALUES (101, 'lost', 0)");
            connection.rollback();
            // A cursor: rows in pieces.
            statement.setFetchSize(5);
            ResultSet rows = statement.executeQuery("SELECT id, n FROM jdbc WHERE id < 200 ORDER BY id");
            int count = 0;
            long last = -1;
            while (rows.next()) {
                count += 1;
                last = rows.getLong("id");
            }
            check(count == 21 && last == 100, count + " " + last);
            connection.commit();
        }
        connection.setAutoCommit(true);
    }
    /** Tables of a database that refer to each other. */
    static void twoTables(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL UNIQUE, balance int CHECK (balance >= 0))");
            statement.execute("CREATE TABLE moves (id serial PRIMARY KEY, account int NOT NULL REFERENCES accounts, delta int NOT NULL)");
            statement.executeUpdate("INSERT INTO accounts VALUES (1, 'ada', 100), (2, 'alan', 100)");
        }
        ResultSet keys = connection.getMetaData().getImportedKeys(null, "public", "moves");
        check(keys.next() && keys.getString("PKTABLE_NAME").equals("accounts"), "the foreign key");
        check(keys.getString("FKCOLUMN_NAME").equals("account") && !keys.next(), "of one column");
    }

    /** Writes both tables. */
    static void move(Connection connection, int account, int delta) throws SQLException {
        try (PreparedStatement update = connection.prepareStatement("UPDATE accounts SET balance = balance + ? WHERE id = ?");
                PreparedStatement insert = connection.prepareStatement("INSERT INTO moves (account, delta) VALUES (?, ?)")) {
            update.setInt(1, delta);
            update.setInt(2, account);
            check(update.executeUpdate() == 1, "one row");
            insert.setInt(1, account);
            insert.setInt(2, delta);
            check(insert.executeUpdate() == 1, "one row");
        }
    }

    /** The balance of an account, and how often it was moved, as another connection sees them. */
    static void seen(Connection connection, int account, int balance, int moves) throws SQLException {
        String both = "SELECT a.balance, count(m.id) FROM accounts a LEFT JOIN moves m ON m.account = a.id WHERE a.id = ? GROUP BY a.balance";
        try (PreparedStatement select = connection.prepareStatement(both)) {
            select.setInt(1, account);
            ResultSet row = select.executeQuery();
            check(row.next() && row.getInt(1) == balance && row.getInt(2) == moves, row.getInt(1) + " " + row.getInt(2));
        }
    }

    /** Often enough that the statements are prepared at the server. */
    static void commitsAndRollsBack(Connection connection, Connection other) throws Exception {
        connection.setAutoCommit(false);
        for (int round = 0; round < 10; round++) {
            move(connection, 1, -5);
            move(connection, 2, 5);
        }
        seen(other, 1, 100, 0);
        connection.commit();
        seen(other, 1, 50, 10);
        seen(other, 2, 150, 10);
        move(connection, 1, -5);
        connection.rollback();
        seen(other, 1, 50, 10);
        connection.setAutoCommit(true);
    }

    static void savepoints(Connection connection, Connection other) throws Exception {
        connection.setAutoCommit(false);
        move(connection, 1, -1);
        Savepoint named = connection.setSavepoint("named");
        move(connection, 1, -1);
        move(connection, 2, 2);
        connection.rollback(named);
        Savepoint failed = connection.setSavepoint();
        refused("23503", () -> refersToNone(connection));
        refused("25P02", () -> move(connection, 1, -1));
        connection.rollback(failed);
        move(connection, 2, 1);
        connection.releaseSavepoint(failed);
        connection.commit();
        seen(other, 1, 49, 11);
        seen(other, 2, 151, 11);
        connection.setAutoCommit(true);
    }

    /** A row that refers to none. */
    static void refersToNone(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO moves (account, delta) VALUES (99, 1)");
        }
    }

    static void batches(Connection connection, Connection other) throws Exception {
        connection.setAutoCommit(false);
        try (PreparedStatement update = connection.prepareStatement("UPDATE accounts SET balance = balance + ? WHERE id = ?");
                PreparedStatement insert = connection.prepareStatement("INSERT INTO moves (delta, account) VALUES (?, ?)")) {
            for (int round = 0; round < 20; round++) {
                for (PreparedStatement statement : new PreparedStatement[] {update, insert}) {
                    statement.setInt(1, 1);
                    statement.setInt(2, 1);
                    statement.addBatch();
                }
            }
            check(update.executeBatch().length == 20 && insert.executeBatch().length == 20, "all of them");
        }
        connection.commit();
        seen(other, 1, 69, 31);
        connection.setAutoCommit(true);
    }

    static void violations(Connection connection) throws Exception {
        String[][] wrong = {
            {"23503", "moves_account_fkey", "INSERT INTO moves (account, delta) VALUES (99, 1)"},
            {"23503", "moves_account_fkey", "DELETE FROM accounts WHERE id = 1"},
            {"23505", "accounts_pkey", "INSERT INTO accounts VALUES (1, 'again', 0)"},
            {"23505", "accounts_owner_key", "INSERT INTO accounts VALUES (3, 'ada', 0)"},
            {"23514", "accounts_balance_check", "UPDATE accounts SET balance = -1 WHERE id = 1"},
            {"23502", null, "INSERT INTO moves (account) VALUES (1)"},
        };
        try (Statement statement = connection.createStatement()) {
            for (String[] one : wrong) {
                try {
                    statement.executeUpdate(one[2]);
                    throw new AssertionError(one[2] + " was done");
                } catch (PSQLException error) {
                    check(one[0].equals(error.getSQLState()), one[2] + ": " + error.getSQLState() + " " + error.getMessage());
                    String constraint = error.getServerErrorMessage().getConstraint();
                    check(java.util.Objects.equals(one[1], constraint), one[2] + ": " + constraint);
                }
            }
        }
    }

    /** Two transactions of one snapshot each that write one row: the second one is told so, and is done again. */
    static void begunAgain(Connection connection, Connection other) throws Exception {
        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        connection.setAutoCommit(false);
        other.setAutoCommit(false);
        int tries = 0;
        while (true) {
            tries += 1;
            try (Statement statement = connection.createStatement()) {
                ResultSet row = statement.executeQuery("SELECT balance FROM accounts WHERE id = 2");
                check(row.next(), "a row");
                int balance = row.getInt(1);
                if (tries == 1) {
                    move(other, 2, 10);
                    other.commit();
                }
                statement.executeUpdate("UPDATE accounts SET balance = " + (balance - 1) + " WHERE id = 2");
                statement.executeUpdate("INSERT INTO moves (account, delta) VALUES (2, -1)");
                connection.commit();
                break;
            } catch (SQLException error) {
                check("40001".equals(error.getSQLState()) && tries == 1, error.getSQLState() + " " + error.getMessage());
                connection.rollback();
            }
        }
        check(tries == 2, tries);
        seen(other, 2, 160, 13);
        other.commit();
        connection.setAutoCommit(true);
        other.setAutoCommit(true);
    }
}
