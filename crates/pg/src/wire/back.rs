//! What clients are sent.

use super::Link;
use crate::failure::{Failure, code};
use crate::kind::Kind;
use crate::service::{Column, Transaction};
use crate::values::{self, Formats};
use bytes::{BufMut, BytesMut};
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::{
    CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, ReadyForQuery, SslResponse,
    TransactionStatus,
};
use pgwire::messages::startup::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey,
};
use pgwire::messages::{Message, PgWireBackendMessage};
use types::data::Value;

impl Link {
    fn push(&mut self, message: impl Message) {
        push(&mut self.out, &message);
    }

    /// Encryption from here on.
    pub fn agree_to_encrypt(&mut self) {
        let agreed = PgWireBackendMessage::SslResponse(SslResponse::Accept);
        agreed.encode(&mut self.out).expect("one byte");
    }

    /// No encryption here.
    pub fn refuse_encryption(&mut self) {
        let refused = PgWireBackendMessage::SslResponse(SslResponse::Refuse);
        refused.encode(&mut self.out).expect("one byte");
    }

    /// Older than the client would like.
    pub fn negotiate(&mut self, unknown: Vec<String>) {
        self.push(NegotiateProtocolVersion::new(0, unknown));
    }

    pub fn ask_password(&mut self) {
        self.push(Authentication::SASL(vec!["SCRAM-SHA-256".into()]));
    }

    pub fn challenge(&mut self, text: String) {
        self.push(Authentication::SASLContinue(text.into()));
    }

    pub fn proof(&mut self, text: String) {
        self.push(Authentication::SASLFinal(text.into()));
    }

    pub fn welcome(&mut self) {
        self.push(Authentication::Ok);
    }

    pub fn parameter(&mut self, name: &str, value: &str) {
        self.push(ParameterStatus::new(name.into(), value.into()));
    }

    pub fn key(&mut self, pid: i32, key: i32) {
        self.push(BackendKeyData::new(pid, SecretKey::I32(key)));
    }

    pub fn ready(&mut self, transaction: Transaction) {
        self.push(ReadyForQuery::new(match transaction {
            Transaction::Idle => TransactionStatus::Idle,
            Transaction::Open => TransactionStatus::Transaction,
            Transaction::Failed => TransactionStatus::Error,
        }));
    }

    pub fn parse_complete(&mut self) {
        self.push(ParseComplete::new());
    }

    pub fn bind_complete(&mut self) {
        self.push(BindComplete::new());
    }

    pub fn close_complete(&mut self) {
        self.push(CloseComplete::new());
    }

    pub fn no_data(&mut self) {
        self.push(NoData::new());
    }

    pub fn empty(&mut self) {
        self.push(EmptyQueryResponse::new());
    }

    pub fn portal_suspended(&mut self) {
        self.push(PortalSuspended::new());
    }

    pub fn complete(&mut self, tag: &str) {
        self.push(CommandComplete::new(tag.into()));
    }

    pub fn parameter_description(&mut self, kinds: &[Kind]) {
        self.push(ParameterDescription::new(kinds.iter().map(|kind| kind.oid()).collect()));
    }

    pub fn row_description(&mut self, columns: &[Column], formats: &Formats) {
        let field = |(at, column): (usize, &Column)| {
            let format = i16::from(formats.is_binary(at));
            FieldDescription::new(
                column.name.clone(),
                0,
                0,
                column.kind.oid(),
                column.kind.size(),
                // As PostgreSQL counts it.
                column.width.and_then(|width| i32::try_from(width).ok()).map_or(-1, |width| width + 4),
                format,
            )
        };
        self.push(RowDescription::new(columns.iter().enumerate().map(field).collect()));
    }

    /// Rows are most of what is sent: they are written without a message in between.
    pub fn data_row(&mut self, row: &[Value], columns: &[Column], formats: &Formats) -> Result<(), Failure> {
        self.row.clear();
        for (at, (value, column)) in row.iter().zip(columns).enumerate() {
            let filled = column.filled(value);
            let value = filled.as_ref().unwrap_or(value);
            values::write(&mut self.row, &mut self.scratch, column.kind, formats.is_binary(at), value)?;
        }
        let length = i32::try_from(self.row.len() + 6)
            .map_err(|_| Failure::new(code::LIMIT, "a row is longer than the protocol can say"))?;
        self.out.put_u8(b'D');
        self.out.put_i32(length);
        self.out.put_i16(row.len() as i16);
        self.out.put_slice(&self.row);
        Ok(())
    }

    /// The client is to send rows of so many columns, as text.
    pub fn copy_in(&mut self, columns: usize) {
        self.copy(b'G', columns);
    }

    /// Rows of so many columns come, as text.
    pub fn copy_out(&mut self, columns: usize) {
        self.copy(b'H', columns);
    }

    fn copy(&mut self, tag: u8, columns: usize) {
        self.out.put_u8(tag);
        self.out.put_i32(4 + 1 + 2 + 2 * columns as i32);
        self.out.put_u8(0);
        self.out.put_i16(columns as i16);
        self.out.put_bytes(0, 2 * columns);
    }

    /// A piece of the data of a COPY.
    pub fn copy_data(&mut self, piece: &[u8]) -> Result<(), Failure> {
        let length = i32::try_from(piece.len() + 4)
            .map_err(|_| Failure::new(code::LIMIT, "a row is longer than the protocol can say"))?;
        self.out.put_u8(b'd');
        self.out.put_i32(length);
        self.out.put_slice(piece);
        Ok(())
    }

    pub fn copy_done(&mut self) {
        self.out.put_u8(b'c');
        self.out.put_i32(4);
    }

    pub fn error(&mut self, failure: &Failure) {
        let severity = if failure.fatal { "FATAL" } else { "ERROR" };
        self.push(ErrorResponse::new(fields(severity, failure)));
    }

    /// Something that the client should know, of a statement that is done all the same.
    pub fn warning(&mut self, failure: &Failure) {
        // What was done all the same is no more than a note.
        let severity = if failure.code == "00000" { "NOTICE" } else { "WARNING" };
        self.push(NoticeResponse::new(fields(severity, failure)));
    }
}

fn fields(severity: &str, failure: &Failure) -> Vec<(u8, String)> {
    let mut fields = vec![
        (b'S', severity.to_string()),
        (b'V', severity.to_string()),
        (b'C', failure.code.to_string()),
        (b'M', failure.message.replace('\0', " ")),
    ];
    let (detail, hint, context) =
        (failure.detail.as_deref(), failure.hint.as_deref(), failure.context.as_deref());
    for (field, text) in [(b'D', detail), (b'H', hint), (b'W', context)] {
        fields.extend(text.map(|text| (field, text.replace('\0', " "))));
    }
    if let Some(object) = &failure.object {
        fields.extend([(b's', object.schema.clone()), (b't', object.table.clone())]);
        fields.extend(object.column.clone().map(|column| (b'c', column)));
        fields.extend(object.constraint.clone().map(|constraint| (b'n', constraint)));
    }
    fields
}

fn push(out: &mut BytesMut, message: &impl Message) {
    let before = out.len();
    if message.encode(out).is_err() {
        // Longer than the protocol allows, which only a name or a text of ours could be: nothing of it may be
        // sent.
        out.truncate(before);
        let fields = [(b'S', "ERROR"), (b'V', "ERROR"), (b'C', code::LIMIT), (b'M', "an answer is too long")];
        let fields = fields.map(|(field, text)| (field, text.to_string()));
        ErrorResponse::new(fields.to_vec()).encode(out).expect("a short answer");
    }
}
