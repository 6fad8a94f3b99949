;; total(): the sum of all balances. It is read only.
(module
  (import "value" "int" (func $number (param i64)))
  (import "table:accounts" "range" (func $range (param i32 i32) (result i32)))
  (import "table:accounts" "next" (func $next (result i32)))
  (import "table:accounts" "int balance" (func $balance (result i64)))
  (import "call" "result" (func $result))
  (func (export "run")
    (local $sum i64)
    (drop (call $range (i32.const 0) (i32.const 10000)))
    (block $end
      (loop $on
        (br_if $end (i32.eqz (call $next)))
        (local.set $sum (i64.add (local.get $sum) (call $balance)))
        (br $on)))
    (call $number (local.get $sum))
    (call $result)))
