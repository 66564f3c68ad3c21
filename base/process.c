/* Reads the memory use of this process from /proc/self (proc(5)). */
#include "base/process.h"

#include <stdio.h>
#include <unistd.h>

int64_t process_resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long long pages = 0;

	if (f && fscanf(f, "%*s %lld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

int64_t process_peak_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	long long kib = 0;
	char line[256];

	while (f && !kib && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %lld", &kib) != 1)
			kib = 0;
	if (f)
		fclose(f);
	return kib * 1024;
}

void process_peak_reset(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "we");

	if (!f)
		return;
	fputs("5", f);
	fclose(f);
}
