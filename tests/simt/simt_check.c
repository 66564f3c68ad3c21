#include "tests/simt/simt_machine.h"

void check_block_begin(void) {}
void check_launch_begin(void) {}
void check_access(const void *at, size_t bytes, enum access_kind kind, size_t align)
{
	(void)at;
	(void)bytes;
	(void)kind;
	(void)align;
}
void check_async_begin(const void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
}
void check_async_end(const void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
}
int simt_has_checks(void)
{
	return machine.checks;
}
void simt_note_write(const void *at, size_t bytes)
{
	(void)at;
	(void)bytes;
}
