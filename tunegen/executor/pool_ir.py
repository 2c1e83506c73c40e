"""The pool as LLVM IR: `parallel_for`, the workers, and how they find each other.

A region has blocks. Each participant begins with the block of its own number and then takes the next one that nobody
took, from a cursor. Each worker has a mailbox, whose state says whose turn it is:

    IDLE     the worker looks, for a while             -> POSTED by a caller, ASLEEP by the worker
    ASLEEP   the worker waits on the state (a futex)   -> POSTED by a caller, who wakes it
    POSTED   a region waits for the worker             -> RUNNING by the worker, IDLE by a caller who has done all else
    RUNNING  the worker has blocks                     -> IDLE by the worker, AWAITED by the caller
    AWAITED  the caller waits on the state (a futex)   -> IDLE by the worker, which wakes the caller
    END      the worker ends

A caller who finds the state POSTED when no other block is left takes the region back and does the worker's block
itself, so a region never waits for a worker to wake up. The lock of a pool is held for the length of a region: 0 free,
1 held, 2 held and waited for; a region only ever tries it.
"""

from __future__ import annotations

from string import Template

from tunegen.executor import layout
from tunegen.executor.events_ir import EVENTS
from tunegen.executor.region_ir import REGION
from tunegen.executor.worker_ir import START, WORKER

SYMBOLS = ("tunegen_parallel_for", "tunegen_pool_setup", "tunegen_pool_start", "tunegen_pool_close",
           "tunegen_pool_collect")  # fmt: skip
"""What Python calls, by the order of `tunegen.executor.native.Library`."""

ARCHITECTURES = {
    "x86_64": {"pause": "call void @llvm.x86.sse2.pause()", "futex": "202", "gettid": "186"},
    # an instruction barrier takes about as long as a pause there; a yield takes no time at all
    "aarch64": {"pause": "call void @llvm.aarch64.isb(i32 15)", "futex": "98", "gettid": "178"},
}
"""What the pool needs to know of an architecture: an instruction to wait with, and numbers of Linux's system calls."""


def pool_ir(architecture: str) -> str:
    """The module for an architecture. Raises `KeyError` for one that is not in `ARCHITECTURES`."""
    states = {name: str(getattr(layout, name)) for name in _NUMBERS}
    text = "".join((layout.TYPES, _GROUND, _SHARES, WORKER, REGION, START, EVENTS))
    return Template(text).substitute(states, **ARCHITECTURES[architecture])


_NUMBERS = ("IDLE", "ASLEEP", "POSTED", "RUNNING", "AWAITED", "END",
            "ONE_BLOCK", "ONE_PARTICIPANT", "NESTED", "BUSY", "COUNTERS")  # fmt: skip

_GROUND = """
@inside = internal global i32 0 ; pthread key: the pool of the outermost region that this thread is in
@ready = internal global i1 false ; whether there is that key
@processors = internal global i64 0
@active = internal global i64 0, align 128 ; participants of all regions of the process

declare i64 @syscall(i64, ...)
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)
declare i32 @clock_gettime(i32, ptr)
declare i64 @read(i32, ptr, i64)

; once a process, and again in the child of a fork; returns 0, or the error of pthread_key_create
define i64 @tunegen_pool_setup(i64 %processors) {
entry:
  store atomic i64 %processors, ptr @processors monotonic, align 8
  store atomic i64 0, ptr @active monotonic, align 8
  %ready = load i1, ptr @ready
  br i1 %ready, label %out, label %make
make:
  %code = call i32 @pthread_key_create(ptr @inside, ptr null)
  %made = icmp eq i32 %code, 0
  store i1 %made, ptr @ready
  br label %out
out:
  %result = phi i32 [ 0, %entry ], [ %code, %make ]
  %wide = sext i32 %result to i64
  ret i64 %wide
}

define internal void @enter(ptr %pool) alwaysinline {
  %key = load i32, ptr @inside
  %code = call i32 @pthread_setspecific(i32 %key, ptr %pool)
  ret void
}

define internal ptr @entered() alwaysinline {
  %key = load i32, ptr @inside
  %pool = call ptr @pthread_getspecific(i32 %key)
  ret ptr %pool
}

; sleeps unless *word is no longer `value`; may return early
define internal void @doze(ptr %word, i32 %value) noinline cold {
  %wide = zext i32 %value to i64
  %code = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i64 %wide, ptr null, ptr null, i64 0)
  ret void
}

define internal void @wake(ptr %word) noinline cold {
  %code = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i64 1, ptr null, ptr null, i64 0)
  ret void
}

define internal i64 @now(i32 %clock) noinline {
  %time = alloca [2 x i64]
  %code = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}

; looks at *word until it is no longer `value`, for about `ns`; returns what it saw last. Gives up early while regions
; have more participants than there are processors: somebody else could use this one.
define internal i32 @spin(ptr %word, i32 %value, i64 %ns) noinline {
entry:
  %first = load atomic i32, ptr %word acquire, align 4
  %waits = icmp eq i32 %first, %value
  %may = icmp sgt i64 %ns, 0
  %go = and i1 %waits, %may
  br i1 %go, label %round, label %out.first
out.first:
  ret i32 %first
round:
  %start = phi i64 [ -1, %entry ], [ %since, %clock ]
  br label %look
look:
  %looks = phi i64 [ 0, %round ], [ %looks.next, %again ]
  $pause
  %seen = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %seen, %value
  br i1 %same, label %again, label %out
again:
  %looks.next = add i64 %looks, 1
  %enough = icmp eq i64 %looks.next, 64
  br i1 %enough, label %clock, label %look
clock:
  %now = call i64 @now(i32 1)
  %begun = icmp sge i64 %start, 0
  %since = select i1 %begun, i64 %start, i64 %now
  %spent = sub i64 %now, %since
  %over = icmp sge i64 %spent, %ns
  %active = load atomic i64, ptr @active monotonic, align 8
  %processors = load atomic i64, ptr @processors monotonic, align 8
  %crowded = icmp sgt i64 %active, %processors
  %give.up = or i1 %over, %crowded
  br i1 %give.up, label %out, label %round
out:
  ret i32 %seen
}

; takes a lock whose holders only ever tried it
define internal void @lock(ptr %lock) {
entry:
  br label %try
try:
  %old = atomicrmw xchg ptr %lock, i32 2 seq_cst
  %free = icmp eq i32 %old, 0
  br i1 %free, label %out, label %sleep
sleep:
  call void @doze(ptr %lock, i32 2)
  br label %try
out:
  ret void
}

define internal void @unlock(ptr %lock) {
  %old = atomicrmw xchg ptr %lock, i32 0 seq_cst
  %waited = icmp eq i32 %old, 2
  br i1 %waited, label %rouse, label %out
rouse:
  call void @wake(ptr %lock)
  br label %out
out:
  ret void
}
"""

_SHARES = """
define internal void @block(ptr %body, ptr %context, i64 %size, i64 %block, i64 %index, i64 %participant) alwaysinline {
  %begin = mul i64 %index, %block
  %left = sub i64 %size, %begin
  %part = call i64 @llvm.umin.i64(i64 %block, i64 %left)
  %end = add i64 %begin, %part
  call void %body(ptr %context, i64 %begin, i64 %end, i64 %participant)
  ret void
}

; the blocks of one participant: its own, and while there are `more` than participants, the next one
define internal void @share(
    ptr %pool, ptr %body, ptr %context, i64 %size, i64 %block, i64 %blocks, i1 %more, i64 %participant) {
entry:
  call void @block(ptr %body, ptr %context, i64 %size, i64 %block, i64 %participant, i64 %participant)
  br i1 %more, label %next, label %out
next:
  %cursor = getelementptr %pool, ptr %pool, i64 0, i32 9
  %index = atomicrmw add ptr %cursor, i64 1 monotonic
  %some = icmp ult i64 %index, %blocks
  br i1 %some, label %take, label %out
take:
  call void @block(ptr %body, ptr %context, i64 %size, i64 %block, i64 %index, i64 %participant)
  br label %next
out:
  ret void
}

; all blocks in order, on the caller
define internal i64 @alone(ptr %body, ptr %context, i64 %size, i64 %grain, i64 %reason, ptr %collector, ptr %record) {
entry:
  %given = icmp sgt i64 %grain, 0
  %fits = call i64 @llvm.umin.i64(i64 %grain, i64 %size)
  %block = select i1 %given, i64 %fits, i64 %size
  call void @sample_caller(ptr %collector, ptr %record, i64 -1)
  br label %next
next:
  %begin = phi i64 [ 0, %entry ], [ %end, %next ]
  %left = sub i64 %size, %begin
  %part = call i64 @llvm.umin.i64(i64 %block, i64 %left)
  %end = add i64 %begin, %part
  call void %body(ptr %context, i64 %begin, i64 %end, i64 0)
  %done = icmp uge i64 %end, %size
  br i1 %done, label %out, label %next
out:
  call void @sample_caller(ptr %collector, ptr %record, i64 1)
  call void @note(ptr %record, i64 %block, i64 1, i64 1, i64 %reason)
  ret i64 1
}
"""
