"""What a watched region costs, as LLVM IR: appended to the pool's module, and off the way of a region that is not."""

EVENTS = """
; sets what a worker used to nothing, where the region is recorded
define internal void @clear(ptr %record, ptr %box) alwaysinline {
  %off = icmp eq ptr %record, null
  br i1 %off, label %out, label %on
on:
  %used = getelementptr %mailbox, ptr %box, i64 0, i32 14
  call void @llvm.memset.p0.i64(ptr %used, i8 0, i64 136, i1 false)
  br label %out
out:
  ret void
}

; adds what a worker used to the record
define internal void @gather(ptr %record, ptr %box) alwaysinline {
entry:
  %off = icmp eq ptr %record, null
  br i1 %off, label %out, label %on
on:
  %used = getelementptr %mailbox, ptr %box, i64 0, i32 14
  %sum = getelementptr %record, ptr %record, i64 0, i32 10
  br label %next
next:
  %i = phi i64 [ 0, %on ], [ %i.next, %next ]
  %from = getelementptr i64, ptr %used, i64 %i
  %to = getelementptr i64, ptr %sum, i64 %i
  call void @add(ptr %to, ptr %from, i64 1)
  %i.next = add i64 %i, 1
  %done = icmp eq i64 %i.next, 17
  br i1 %done, label %out, label %next
out:
  ret void
}

define internal void @note(ptr %record, i64 %block, i64 %admitted, i64 %observed, i64 %reason) alwaysinline {
  %off = icmp eq ptr %record, null
  br i1 %off, label %out, label %on
on:
  %block.at = getelementptr %record, ptr %record, i64 0, i32 4
  store i64 %block, ptr %block.at
  %admitted.at = getelementptr %record, ptr %record, i64 0, i32 6
  store i64 %admitted, ptr %admitted.at
  %observed.at = getelementptr %record, ptr %record, i64 0, i32 7
  store i64 %observed, ptr %observed.at
  %reason.at = getelementptr %record, ptr %record, i64 0, i32 8
  store i64 %reason, ptr %reason.at
  br label %out
out:
  ret void
}

define internal void @sample_caller(ptr %collector, ptr %record, i64 %sign) alwaysinline {
  %off = icmp eq ptr %record, null
  br i1 %off, label %out, label %on
on:
  %used = getelementptr %record, ptr %record, i64 0, i32 10
  call void @sample(ptr %collector, ptr %used, i64 0, i64 %sign)
  br label %out
out:
  ret void
}

; *to += sign * *from
define internal void @add(ptr %to, ptr %from, i64 %sign) alwaysinline {
  %old = load i64, ptr %to
  %value = load i64, ptr %from
  %signed = mul i64 %value, %sign
  %new = add i64 %old, %signed
  store i64 %new, ptr %to
  ret void
}

; adds this thread's clock and counters to `used`, or at the begin takes them off
define internal void @sample(ptr %collector, ptr %used, i64 %participant, i64 %sign) noinline cold {
entry:
  %read = alloca [3 x i64]
  %cpu = alloca i64
  %cpu.now = call i64 @now(i32 3)
  store i64 %cpu.now, ptr %cpu
  call void @add(ptr %used, ptr %cpu, i64 %sign)
  %counters.at = getelementptr %collector, ptr %collector, i64 0, i32 4
  %counters = load i64, ptr %counters.at
  %none = icmp eq i64 %counters, 0
  br i1 %none, label %out, label %mine
mine:
  %rows.at = getelementptr %collector, ptr %collector, i64 0, i32 3
  %rows = load i64, ptr %rows.at
  %known = icmp ult i64 %participant, %rows
  br i1 %known, label %caller.row, label %out
caller.row:
  %worker = icmp ne i64 %participant, 0
  br i1 %worker, label %counted, label %same.thread
same.thread:
  %caller.at = getelementptr %collector, ptr %collector, i64 0, i32 2
  %caller = load i64, ptr %caller.at
  %id = call i64 (i64, ...) @syscall(i64 $gettid)
  %same = icmp eq i64 %id, %caller
  br i1 %same, label %counted, label %out
counted:
  %files.at = getelementptr %collector, ptr %collector, i64 0, i32 5
  %files = load ptr, ptr %files.at
  %row = mul i64 %participant, $COUNTERS
  br label %next
next:
  %k = phi i64 [ 0, %counted ], [ %k.next, %one ], [ %k.next, %good ]
  %any = icmp ult i64 %k, %counters
  br i1 %any, label %one, label %out
one:
  %k.next = add i64 %k, 1
  %at = add i64 %row, %k
  %file.at = getelementptr i32, ptr %files, i64 %at
  %file = load i32, ptr %file.at
  %bytes = call i64 @read(i32 %file, ptr %read, i64 24)
  %whole = icmp eq i64 %bytes, 24
  br i1 %whole, label %good, label %next
good:
  %value = getelementptr %slot, ptr %used, i64 0, i32 1, i64 %k
  call void @add(ptr %value, ptr %read, i64 %sign)
  %enabled = getelementptr %count, ptr %value, i64 0, i32 1
  %enabled.read = getelementptr i64, ptr %read, i64 1
  call void @add(ptr %enabled, ptr %enabled.read, i64 %sign)
  %running = getelementptr %count, ptr %value, i64 0, i32 2
  %running.read = getelementptr i64, ptr %read, i64 2
  call void @add(ptr %running, ptr %running.read, i64 %sign)
  %readings = getelementptr %count, ptr %value, i64 0, i32 3
  %count = load i64, ptr %readings
  %count.next = add i64 %count, 1
  store i64 %count.next, ptr %readings
  br label %next
out:
  ret void
}

; a region with a record. `recording` counts those that may still use the collector that they found
define internal i64 @recorded(
    ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants, i64 %label) noinline cold {
entry:
  %record = alloca %record
  call void @llvm.memset.p0.i64(ptr %record, i8 0, i64 256, i1 false)
  %recording = getelementptr %pool, ptr %pool, i64 0, i32 4
  %others = atomicrmw add ptr %recording, i64 1 seq_cst
  %collector.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  %collector = load atomic ptr, ptr %collector.at seq_cst, align 8
  %off = icmp eq ptr %collector, null
  br i1 %off, label %quiet, label %on
quiet:
  %less = atomicrmw sub ptr %recording, i64 1 seq_cst
  %plain = call i64 @region(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants,
                            ptr null, ptr null)
  ret i64 %plain
on:
  %start = call i64 @now(i32 1)
  %admitted = call i64 @region(ptr %pool, ptr %body, ptr %context, i64 %size, i64 %grain, i64 %participants,
                               ptr %collector, ptr %record)
  %end = call i64 @now(i32 1)
  %wall = sub i64 %end, %start
  %label.at = getelementptr %record, ptr %record, i64 0, i32 1
  store i64 %label, ptr %label.at
  %size.at = getelementptr %record, ptr %record, i64 0, i32 2
  store i64 %size, ptr %size.at
  %grain.at = getelementptr %record, ptr %record, i64 0, i32 3
  store i64 %grain, ptr %grain.at
  %requested.at = getelementptr %record, ptr %record, i64 0, i32 5
  store i64 %participants, ptr %requested.at
  %wall.at = getelementptr %record, ptr %record, i64 0, i32 9
  store i64 %wall, ptr %wall.at
  %taken = getelementptr %collector, ptr %collector, i64 0, i32 1
  %index = atomicrmw add ptr %taken, i64 1 monotonic
  %capacity = load i64, ptr %collector
  %room = icmp ult i64 %index, %capacity
  br i1 %room, label %keep, label %out
keep:
  %records.at = getelementptr %collector, ptr %collector, i64 0, i32 6
  %records = load ptr, ptr %records.at
  %place = getelementptr %record, ptr %records, i64 %index
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %record, i64 256, i1 false)
  store atomic i64 1, ptr %place release, align 8
  br label %out
out:
  %now.less = atomicrmw sub ptr %recording, i64 1 seq_cst
  ret i64 %admitted
}

; sets the collector, or takes it away; returns how many regions may still use the one before
define i64 @tunegen_pool_collect(ptr %pool, ptr %collector) {
  %collector.at = getelementptr %pool, ptr %pool, i64 0, i32 2
  store atomic ptr %collector, ptr %collector.at seq_cst, align 8
  %recording = getelementptr %pool, ptr %pool, i64 0, i32 4
  %others = load atomic i64, ptr %recording seq_cst, align 8
  ret i64 %others
}
"""
