//! The nine tables (TPC-C 5.11, clause 1.3). Every primary key begins with the warehouse, so that all rows of
//! one warehouse can lie in one partition.

/// What makes the tables, in an order in which they can be made.
pub const TABLES: [&str; 9] = [
    "CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), w_street_2 \
     varchar(20), w_city varchar(20), w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2))",
    "CREATE TABLE district (w_id int, d_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 \
     varchar(20), d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd \
     numeric(12,2), d_next_o_id int, PRIMARY KEY (w_id, d_id))",
    "CREATE TABLE customer (w_id int, d_id int, c_id int, c_first varchar(16), c_middle char(2), c_last \
     varchar(16), c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip \
     char(9), c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), c_discount \
     numeric(4,4), c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt \
     int, c_data varchar(500), PRIMARY KEY (w_id, d_id, c_id))",
    "CREATE TABLE history (w_id int, h_id bigint, h_c_id int, h_c_d_id int, h_d_id int, h_date timestamp, \
     h_amount numeric(6,2), h_data varchar(24), PRIMARY KEY (w_id, h_id))",
    "CREATE TABLE orders (w_id int, d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, \
     o_ol_cnt int, o_all_local int, PRIMARY KEY (w_id, d_id, o_id))",
    "CREATE TABLE new_order (w_id int, d_id int, o_id int, PRIMARY KEY (w_id, d_id, o_id))",
    "CREATE TABLE order_line (w_id int, d_id int, o_id int, ol_number int, ol_i_id int, ol_supply_w_id int, \
     ol_delivery_d timestamp, ol_quantity int, ol_amount numeric(6,2), ol_dist_info char(24), PRIMARY KEY \
     (w_id, d_id, o_id, ol_number))",
    "CREATE TABLE item (w_id int, i_id int, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data \
     varchar(50), PRIMARY KEY (w_id, i_id))",
    "CREATE TABLE stock (w_id int, i_id int, s_quantity int, s_dist_01 char(24), s_dist_02 char(24), \
     s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), \
     s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int, s_order_cnt int, s_remote_cnt \
     int, s_data varchar(50), PRIMARY KEY (w_id, i_id))",
];

/// What `history` has besides, where customers pay at other warehouses than their own: whose they are.
pub const REMOTE: &str = "ALTER TABLE history ADD COLUMN h_c_w_id int";

/// The names of the tables.
pub const NAMES: [&str; 9] =
    ["warehouse", "district", "customer", "history", "orders", "new_order", "order_line", "item", "stock"];

/// By what rows are found other than by their keys. Made behind the rows.
pub const INDEXES: [&str; 2] = [
    "CREATE INDEX customer_by_name ON customer (w_id, d_id, c_last)",
    "CREATE INDEX orders_by_customer ON orders (w_id, d_id, o_c_id)",
];

/// What programs find customers and orders by in the place of [`INDEXES`]: tables that they keep themselves.
pub const KEPT: [&str; 2] = [
    "CREATE TABLE customer_name (w_id int, d_id int, c_last varchar(16), c_first varchar(16), c_id int, PRIMARY \
     KEY (w_id, d_id, c_last, c_first, c_id))",
    "CREATE TABLE last_order (w_id int, d_id int, c_id int, o_id int, PRIMARY KEY (w_id, d_id, c_id))",
];

/// The names of those.
pub const KEPT_NAMES: [&str; 2] = ["customer_name", "last_order"];
