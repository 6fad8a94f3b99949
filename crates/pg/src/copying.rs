//! COPY on the wire: rows that a client sends, and rows that it is sent, between two messages that begin and
//! end them.

use crate::copy::Writer;
use crate::failure::{Failure, code};
use crate::service::{CopyOut, Service, Session};
use crate::session::{Conversation, canceled};
use crate::wire::{End, Front};

impl<S: Service> Conversation<S> {
    /// Takes rows until the client has sent all, gives up, or a row is refused. What it goes on to send after
    /// an error is skipped, as PostgreSQL does.
    pub(crate) async fn copy_in(&mut self, columns: usize) -> Result<Result<(), Failure>, End> {
        self.link.copy_in(columns);
        let ended = loop {
            if !self.link.has_message() {
                self.link.flush().await?;
            }
            let message = tokio::select! {
                biased;
                () = self.cancel.wait() => break Err(canceled()),
                message = self.link.message() => message?,
            };
            let taken = match message {
                None => return Err(End::Gone),
                Some(Front::CopyData(piece)) => tokio::select! {
                    biased;
                    () = self.cancel.wait() => Err(canceled()),
                    taken = self.session.copy_data(piece) => taken,
                },
                Some(Front::CopyDone) => tokio::select! {
                    biased;
                    () = self.cancel.wait() => break Err(canceled()),
                    done = self.session.copy_done() => break done,
                },
                Some(Front::CopyFail(why)) => {
                    Err(Failure::new(code::CANCELED, format!("COPY from stdin failed: {why}")))
                }
                // A client may send them after Execute before it knows that it is asked for rows.
                Some(Front::Sync | Front::Flush) => Ok(()),
                Some(_) => Err(Failure::protocol("unexpected message type during COPY from stdin")),
            };
            if let Err(failure) = taken {
                break Err(failure);
            }
        };
        match ended {
            Ok(tag) => {
                self.warn();
                self.link.complete(&tag);
                Ok(Ok(()))
            }
            Err(failure) => Ok(Err(self.session.copy_ended(failure).await)),
        }
    }

    /// Sends rows, each as a message of its own.
    pub(crate) async fn copy_out(&mut self, copy: CopyOut) -> Result<Result<(), Failure>, End> {
        let CopyOut { format, columns, mut rows } = copy;
        self.link.copy_out(columns.len());
        let mut writer = Writer::new(format);
        let mut line = Vec::new();
        if writer.header(&mut line, columns.iter().map(|column| column.name.as_str())) {
            self.link.copy_data(&line)?;
        }
        let mut count = 0u64;
        while let Some(row) = self.next_row(&mut rows).await {
            let row = match row {
                Ok(row) => row,
                Err(failure) => return Ok(Err(failure)),
            };
            line.clear();
            writer.row(&mut line, &columns, &row);
            if let Err(failure) = self.link.copy_data(&line) {
                return Ok(Err(failure));
            }
            count += 1;
            self.link.flush_if_long().await?;
        }
        self.link.copy_done();
        self.link.complete(&format!("COPY {count}"));
        Ok(Ok(()))
    }
}
