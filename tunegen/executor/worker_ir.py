"""The workers as LLVM IR: their loop, how they start and how they end. A part of the pool's module."""

WORKER = """
define internal ptr @worker(ptr %box) {
entry:
  %pool.at = getelementptr %mailbox, ptr %box, i64 0, i32 10
  %pool = load ptr, ptr %pool.at
  %participant.at = getelementptr %mailbox, ptr %box, i64 0, i32 11
  %participant = load i64, ptr %participant.at
  %posts.at = getelementptr %mailbox, ptr %box, i64 0, i32 8
  %spin.at = getelementptr %pool, ptr %pool, i64 0, i32 3
  call void @enter(ptr %pool)
  %id = call i64 (i64, ...) @syscall(i64 $gettid)
  %id.at = getelementptr %mailbox, ptr %box, i64 0, i32 12
  store atomic i64 %id, ptr %id.at release, align 8
  br label %look
look:
  %posts = load atomic i64, ptr %posts.at monotonic, align 8
  %ns = load atomic i64, ptr %spin.at monotonic, align 8
  %seen = call i32 @spin(ptr %box, i32 $IDLE, i64 %ns)
  switch i32 %seen, label %rest [ i32 $POSTED, label %take
                                  i32 $END, label %end ]
rest:
  ; regions that were taken back too soon to be seen count, too: the next one will not be long
  %posts.now = load atomic i64, ptr %posts.at monotonic, align 8
  %quiet.while = icmp eq i64 %posts, %posts.now
  br i1 %quiet.while, label %lie.down, label %look
lie.down:
  %resting = cmpxchg ptr %box, i32 $IDLE, i32 $ASLEEP seq_cst seq_cst
  %rests = extractvalue { i32, i1 } %resting, 1
  br i1 %rests, label %sleep, label %look
sleep:
  call void @doze(ptr %box, i32 $ASLEEP)
  %state = load atomic i32, ptr %box acquire, align 4
  %still = icmp eq i32 %state, $ASLEEP
  br i1 %still, label %sleep, label %look
take:
  %taking = cmpxchg ptr %box, i32 $POSTED, i32 $RUNNING seq_cst seq_cst
  %took = extractvalue { i32, i1 } %taking, 1
  br i1 %took, label %run, label %look
run:
  %more.at = getelementptr %mailbox, ptr %box, i64 0, i32 1
  %more.word = load i32, ptr %more.at
  %more = icmp ne i32 %more.word, 0
  %body.at = getelementptr %mailbox, ptr %box, i64 0, i32 2
  %body = load ptr, ptr %body.at
  %context.at = getelementptr %mailbox, ptr %box, i64 0, i32 3
  %context = load ptr, ptr %context.at
  %size.at = getelementptr %mailbox, ptr %box, i64 0, i32 4
  %size = load i64, ptr %size.at
  %block.at = getelementptr %mailbox, ptr %box, i64 0, i32 5
  %block = load i64, ptr %block.at
  %blocks.at = getelementptr %mailbox, ptr %box, i64 0, i32 6
  %blocks = load i64, ptr %blocks.at
  %collector.at = getelementptr %mailbox, ptr %box, i64 0, i32 7
  %collector = load ptr, ptr %collector.at
  %quiet = icmp eq ptr %collector, null
  br i1 %quiet, label %work, label %watched
watched:
  %used = getelementptr %mailbox, ptr %box, i64 0, i32 14
  call void @sample(ptr %collector, ptr %used, i64 %participant, i64 -1)
  call void @share(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %block, i64 %blocks, i1 %more, i64 %participant)
  call void @sample(ptr %collector, ptr %used, i64 %participant, i64 1)
  br label %done
work:
  call void @share(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %block, i64 %blocks, i1 %more, i64 %participant)
  br label %done
done:
  %finishing = cmpxchg ptr %box, i32 $RUNNING, i32 $IDLE seq_cst seq_cst
  %finished = extractvalue { i32, i1 } %finishing, 1
  br i1 %finished, label %look, label %other
other:
  ; awaited; or, in the child of a fork that the body made, ended
  %now = extractvalue { i32, i1 } %finishing, 0
  %awaited = icmp eq i32 %now, $AWAITED
  br i1 %awaited, label %tell, label %end
tell:
  store atomic i32 $IDLE, ptr %box seq_cst, align 4
  call void @wake(ptr %box)
  br label %look
end:
  ret ptr null
}
"""

START = """
; starts workers up to `wanted`, under the lock; returns how many there are. When there can be no more, the pool's
; maximum says so from then on. Signals go to other threads, but for those that a fault of the worker itself raises.
define internal i64 @start(ptr %pool, i64 %wanted) noinline cold {
entry:
  %signals = alloca [16 x i64]
  %before = alloca [16 x i64]
  %c0 = call i32 @sigfillset(ptr %signals)
  %c1 = call i32 @sigdelset(ptr %signals, i32 4)
  %c2 = call i32 @sigdelset(ptr %signals, i32 6)
  %c3 = call i32 @sigdelset(ptr %signals, i32 7)
  %c4 = call i32 @sigdelset(ptr %signals, i32 8)
  %c5 = call i32 @sigdelset(ptr %signals, i32 11)
  %c6 = call i32 @pthread_sigmask(i32 2, ptr %signals, ptr %before)
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 5
  %started = load i64, ptr %started.at
  br label %next
next:
  %i = phi i64 [ %started, %entry ], [ %i.next, %one ]
  %i.next = add i64 %i, 1
  %any = icmp ult i64 %i, %wanted
  br i1 %any, label %one, label %out
one:
  %box = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %i
  store atomic i32 $IDLE, ptr %box seq_cst, align 4
  %pool.at = getelementptr %mailbox, ptr %box, i64 0, i32 10
  store ptr %pool, ptr %pool.at
  %participant.at = getelementptr %mailbox, ptr %box, i64 0, i32 11
  store i64 %i.next, ptr %participant.at
  %id.at = getelementptr %mailbox, ptr %box, i64 0, i32 12
  store atomic i64 0, ptr %id.at seq_cst, align 8
  %thread.at = getelementptr %mailbox, ptr %box, i64 0, i32 9
  %code = call i32 @pthread_create(ptr %thread.at, ptr null, ptr @worker, ptr %box)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %next, label %refused
refused:
  %maximum.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  store atomic i64 %i.next, ptr %maximum.at seq_cst, align 8
  br label %out
out:
  store i64 %i, ptr %started.at
  %c7 = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret i64 %i
}

; starts all workers; returns how many there are, or -1 inside a region, where it cannot wait for the pool
define i64 @tunegen_pool_start(ptr %pool) {
entry:
  %outer = call ptr @entered()
  %inside = icmp ne ptr %outer, null
  br i1 %inside, label %refuse, label %wait
refuse:
  ret i64 -1
wait:
  %lock = getelementptr %pool, ptr %pool, i64 0, i32 7
  call void @lock(ptr %lock)
  %maximum.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  %maximum = load atomic i64, ptr %maximum.at monotonic, align 8
  %wanted = sub i64 %maximum, 1
  %have = call i64 @start(ptr %pool, i64 %wanted)
  call void @unlock(ptr %lock)
  ret i64 %have
}

; ends the workers and waits until they have ended; -1 inside a region of this pool, which would wait for itself
define i64 @tunegen_pool_close(ptr %pool) {
entry:
  %outer = call ptr @entered()
  %inside = icmp eq ptr %outer, %pool
  br i1 %inside, label %refuse, label %wait
refuse:
  ret i64 -1
wait:
  ; regions that begin from here on leave the lock alone
  %maximum.at = getelementptr %pool, ptr %pool, i64 0, i32 1
  store atomic i64 1, ptr %maximum.at seq_cst, align 8
  %lock = getelementptr %pool, ptr %pool, i64 0, i32 7
  call void @lock(ptr %lock)
  %started.at = getelementptr %pool, ptr %pool, i64 0, i32 5
  %started = load i64, ptr %started.at
  br label %tell
tell:
  %i = phi i64 [ 0, %wait ], [ %i.next, %one ], [ %i.next, %rouse ]
  %any = icmp ult i64 %i, %started
  br i1 %any, label %one, label %join
one:
  %i.next = add i64 %i, 1
  %box = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %i
  %was = atomicrmw xchg ptr %box, i32 $END seq_cst
  %asleep = icmp eq i32 %was, $ASLEEP
  br i1 %asleep, label %rouse, label %tell
rouse:
  call void @wake(ptr %box)
  br label %tell
join:
  %j = phi i64 [ 0, %tell ], [ %j.next, %ended ]
  %j.any = icmp ult i64 %j, %started
  br i1 %j.any, label %ended, label %out
ended:
  %j.next = add i64 %j, 1
  %thread.at = getelementptr %pool, ptr %pool, i64 0, i32 11, i64 %j, i32 9
  %thread = load i64, ptr %thread.at
  %code = call i32 @pthread_join(i64 %thread, ptr null)
  br label %join
out:
  store i64 0, ptr %started.at
  call void @unlock(ptr %lock)
  ret i64 0
}
"""
