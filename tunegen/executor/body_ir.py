"""A region's body that is a Python callable, as LLVM IR. An object of its own: the pool has no Python symbol in it.

The exception is taken here and not in Python, because one that a signal handler raises (Ctrl-C) may come before the
first instruction of any Python function, and so outside of its `try`.
"""

SYMBOL = "tunegen_python_body"

BODY_IR = """
@three = private constant [4 x i8] c"LLL\\00"

declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare void @PyErr_Clear()
declare i32 @PyException_SetTraceback(ptr, ptr)
declare i32 @PyList_Append(ptr, ptr)
declare void @Py_DecRef(ptr)

; context: the callable, and the list that takes the exceptions
define void @tunegen_python_body(ptr %context, i64 %begin, i64 %end, i64 %participant) {
entry:
  %type.at = alloca ptr
  %value.at = alloca ptr
  %trace.at = alloca ptr
  %state = call i32 @PyGILState_Ensure()
  %callable = load ptr, ptr %context
  %errors.at = getelementptr ptr, ptr %context, i64 1
  %errors = load ptr, ptr %errors.at
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
      ptr %callable, ptr @three, i64 %begin, i64 %end, i64 %participant)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %error, label %fine
fine:
  call void @Py_DecRef(ptr %result)
  br label %out
error:
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %trace.at)
  call void @PyErr_NormalizeException(ptr %type.at, ptr %value.at, ptr %trace.at)
  %type = load ptr, ptr %type.at
  %value = load ptr, ptr %value.at
  %trace = load ptr, ptr %trace.at
  %untraced = icmp eq ptr %trace, null
  br i1 %untraced, label %keep, label %attach
attach:
  %code = call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  br label %keep
keep:
  %appended = call i32 @PyList_Append(ptr %errors, ptr %value)
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %trace)
  br label %out
out:
  call void @PyGILState_Release(i32 %state)
  ret void
}
"""
