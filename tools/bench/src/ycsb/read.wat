;; read(k text) gives (v bytes): the value of a record.
(module
  (import "arg" "push k" (func $push_key))
  (import "table:records" "get" (func $get (result i32)))
  (import "table:records" "push v" (func $push_value))
  (import "call" "result" (func $result))
  (import "call" "fail" (func $fail (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "there is no such record")
  (func (export "run")
    (call $push_key)
    (if (i32.eqz (call $get)) (then (call $fail (i32.const 0) (i32.const 23))))
    (call $push_value)
    (call $result)))
