"""A region as LLVM IR: whether it is split, and its course on the calling thread. A part of the pool's module."""

REGION = """
define i64 @tunegen_parallel_for(
    ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants, i64 %label) {
entry:
  %empty = icmp slt i64 %size, 1
  br i1 %empty, label %nothing, label %some
nothing:
  ret i64 0
some:
  %collector.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %collector = load atomic ptr, ptr %collector.at monotonic, align 8
  %off = icmp eq ptr %collector, null
  br i1 %off, label %quiet, label %watched, !prof !0
quiet:
  %admitted = call i64 @region(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants,
                               ptr null, ptr null)
  ret i64 %admitted
watched:
  %recorded = call i64 @recorded(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants,
                                 i64 %label)
  ret i64 %recorded
}

define internal i64 @region(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants,
                            ptr %collector, ptr %record) {
entry:
  %maximum.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %maximum = load atomic i64, ptr %maximum.at monotonic, align 8
  %asks = icmp sgt i64 %participants, 0
  %fewer = call i64 @llvm.smin.i64(i64 %participants, i64 %maximum)
  %asked = select i1 %asks, i64 %fewer, i64 %maximum
  %one = icmp slt i64 %asked, 2
  br i1 %one, label %alone, label %cut
cut:
  %limit = call i64 @llvm.umin.i64(i64 %asked, i64 %size)
  %last = sub i64 %size, 1
  %given = icmp sgt i64 %grain, 0
  br i1 %given, label %by.grain, label %equal
by.grain:
  %fits = call i64 @llvm.umin.i64(i64 %grain, i64 %size)
  br label %blocks.known
equal:
  %whole = udiv i64 %last, %limit
  %part = add i64 %whole, 1
  br label %blocks.known
blocks.known:
  %block = phi i64 [ %fits, %by.grain ], [ %part, %equal ]
  %before = udiv i64 %last, %block
  %blocks = add i64 %before, 1
  %wanted = call i64 @llvm.umin.i64(i64 %limit, i64 %blocks)
  %single = icmp ult i64 %wanted, 2
  br i1 %single, label %alone, label %nested
nested:
  %outer = call ptr @entered()
  %free = icmp eq ptr %outer, null
  br i1 %free, label %busy, label %alone
busy:
  %lock = getelementptr %pool, ptr %pool, i64 0, i32 7
  %locking = cmpxchg ptr %lock, i32 0, i32 1 seq_cst seq_cst
  %locked = extractvalue { i32, i1 } %locking, 1
  br i1 %locked, label %ours, label %alone
alone:
  %reason = phi i64 [ $ONE_PARTICIPANT, %entry ], [ $ONE_BLOCK, %blocks.known ],
                    [ $NESTED, %nested ], [ $BUSY, %busy ]
  %by.itself = call i64 @alone(ptr %body, ptr %context, i64 %size, i64 %grain, i64 %reason,
                               ptr %collector, ptr %record)
  ret i64 %by.itself
ours:
  ; the pool may have been closed since its maximum was read
  %still = load atomic i64, ptr %maximum.at monotonic, align 8
  %allowed = call i64 @llvm.umin.i64(i64 %wanted, i64 %still)
  %workers = sub i64 %allowed, 1
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 5
  %started = load i64, ptr %started.at
  %enough = icmp uge i64 %started, %workers
  br i1 %enough, label %ready, label %start
start:
  %more.started = call i64 @start(ptr %pool, i64 %workers)
  br label %ready
ready:
  %have = phi i64 [ %started, %ours ], [ %more.started, %start ]
  %helpers = call i64 @llvm.umin.i64(i64 %workers, i64 %have)
  %admitted = add i64 %helpers, 1
  %others = atomicrmw add ptr @active, i64 %admitted monotonic
  %more = icmp ugt i64 %blocks, %admitted
  %more.word = zext i1 %more to i32
  %cursor = getelementptr %pool, ptr %pool, i64 0, i32 9
  store atomic i64 %admitted, ptr %cursor monotonic, align 8
  br label %post
post:
  %p = phi i64 [ 0, %ready ], [ %p.next, %posted ], [ %p.next, %rouse ]
  %p.any = icmp ult i64 %p, %helpers
  br i1 %p.any, label %fill, label %work
fill:
  %box = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %p
  %p.next = add i64 %p, 1
  %more.at = getelementptr %mailbox, ptr %box, i64 0, i32 1
  store i32 %more.word, ptr %more.at
  %body.at = getelementptr %mailbox, ptr %box, i64 0, i32 2
  store ptr %body, ptr %body.at
  %context.at = getelementptr %mailbox, ptr %box, i64 0, i32 3
  store ptr %context, ptr %context.at
  %size.at = getelementptr %mailbox, ptr %box, i64 0, i32 4
  store i64 %size, ptr %size.at
  %block.at = getelementptr %mailbox, ptr %box, i64 0, i32 5
  store i64 %block, ptr %block.at
  %blocks.at = getelementptr %mailbox, ptr %box, i64 0, i32 6
  store i64 %blocks, ptr %blocks.at
  %collector.at = getelementptr %mailbox, ptr %box, i64 0, i32 7
  store ptr %collector, ptr %collector.at
  %posts.at = getelementptr %mailbox, ptr %box, i64 0, i32 8
  %posts = load i64, ptr %posts.at
  %posts.next = add i64 %posts, 1
  store atomic i64 %posts.next, ptr %posts.at monotonic, align 8
  call void @clear(ptr %record, ptr %box)
  br label %posted
posted:
  %was = atomicrmw xchg ptr %box, i32 $POSTED seq_cst
  %asleep = icmp eq i32 %was, $ASLEEP
  br i1 %asleep, label %rouse, label %post
rouse:
  call void @wake(ptr %box)
  br label %post
work:
  call void @enter(ptr %pool)
  call void @sample_caller(ptr %collector, ptr %record, i64 -1)
  call void @share(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %block, i64 %blocks, i1 %more, i64 0)
  br label %take.back
take.back:
  %t = phi i64 [ 0, %work ], [ %t.next, %left ], [ %t.next, %taken ]
  %late = phi i64 [ 0, %work ], [ %late, %left ], [ %late.next, %taken ]
  %t.any = icmp ult i64 %t, %helpers
  br i1 %t.any, label %try, label %worked
try:
  %t.next = add i64 %t, 1
  %t.box = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %t
  %t.state = load atomic i32, ptr %t.box acquire, align 4
  %unread = icmp eq i32 %t.state, $POSTED
  br i1 %unread, label %claim, label %left
claim:
  %claiming = cmpxchg ptr %t.box, i32 $POSTED, i32 $IDLE seq_cst seq_cst
  %claimed = extractvalue { i32, i1 } %claiming, 1
  br i1 %claimed, label %taken, label %left
taken:
  %late.next = add i64 %late, 1
  call void @block(ptr %body, ptr %context, i64 %size, i64 %block, i64 %t.next, i64 0)
  br label %take.back
left:
  br label %take.back
worked:
  call void @sample_caller(ptr %collector, ptr %record, i64 1)
  %spin.at = getelementptr %pool, ptr %pool, i64 0, i32 3
  %ns = load atomic i64, ptr %spin.at monotonic, align 8
  br label %join
join:
  %j = phi i64 [ 0, %worked ], [ %j.next, %joined ]
  %j.any = icmp ult i64 %j, %helpers
  br i1 %j.any, label %await, label %out
await:
  %j.next = add i64 %j, 1
  %j.box = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %j
  %j.state = call i32 @spin(ptr %j.box, i32 $RUNNING, i64 %ns)
  %j.runs = icmp eq i32 %j.state, $RUNNING
  br i1 %j.runs, label %call, label %joined
call:
  %calling = cmpxchg ptr %j.box, i32 $RUNNING, i32 $AWAITED seq_cst seq_cst
  %called = extractvalue { i32, i1 } %calling, 1
  br i1 %called, label %sleep, label %joined
sleep:
  call void @doze(ptr %j.box, i32 $AWAITED)
  %j.now = load atomic i32, ptr %j.box acquire, align 4
  %j.waits = icmp eq i32 %j.now, $AWAITED
  br i1 %j.waits, label %sleep, label %joined
joined:
  call void @gather(ptr %record, ptr %j.box)
  br label %join
out:
  %less = atomicrmw sub ptr @active, i64 %admitted monotonic
  call void @enter(ptr null)
  call void @unlock(ptr %lock)
  %observed = sub i64 %admitted, %late
  call void @note(ptr %record, i64 %block, i64 %admitted, i64 %observed, i64 0)
  ret i64 %admitted
}

!0 = !{!"branch_weights", i32 2000, i32 1}
"""
