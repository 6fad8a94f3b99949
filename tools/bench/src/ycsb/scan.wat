;; scan(k text, n int) gives (v bytes): the values of up to n records, from a key on.
(module
  (import "arg" "push k" (func $push_key))
  (import "arg" "int n" (func $rows (result i64)))
  (import "table:records" "range" (func $range (param i32 i32) (result i32)))
  (import "table:records" "next" (func $next (result i32)))
  (import "table:records" "push v" (func $push_value))
  (import "call" "result" (func $result))
  (func (export "run")
    (call $push_key)
    (drop (call $range (i32.const 0) (i32.wrap_i64 (call $rows))))
    (block $end
      (loop $more
        (br_if $end (i32.eqz (call $next)))
        (call $push_value)
        (call $result)
        (br $more)))))
