;; write(k text, v bytes): writes a record, whatever was there.
(module
  (import "arg" "push k" (func $push_key))
  (import "arg" "push v" (func $push_value))
  (import "table:records" "put" (func $put))
  (func (export "run")
    (call $push_key)
    (call $push_value)
    (call $put)))
