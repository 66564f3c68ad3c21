/* The search for libraries: its order, and files that it skips. planted_library.c makes the files. */
#include "tests/check.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "gpu/cuda_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const variables[] = {"FERRY_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV",
        "CONDA_PREFIX", "PATH", "PYTHONPATH", "HOME"};

static char *built_in;  /* directory of this program and of the planted files */
static char root[256];  /* what a test plants lies below */
static char path[1024]; /* of the last under() */

static const char *under(const char *relative)
{
	snprintf(path, sizeof(path), "%s%s", root, relative);
	return path;
}

/* Copies a planted file to root/relative, directories included. */
static void plant(const char *file, const char *relative)
{
	char *from = file_join(built_in, file), *to = mem_printf("%s%s", root, relative),
	     *directory = mem_strdup(to);

	*strrchr(directory, '/') = 0;
	check_ok(file_make_dir(directory));
	check_ok(file_copy(from, to));
	mem_free(from);
	mem_free(to);
	mem_free(directory);
}

static void plant_text(const char *text, const char *relative)
{
	char *directory = mem_printf("%s%s", root, relative);

	*strrchr(directory, '/') = 0;
	check_ok(file_make_dir(directory));
	check_ok(file_write_all(under(relative), text, strlen(text)));
	mem_free(directory);
}

static int test_setup(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/ferry_library_XXXXXX");
	for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
		unsetenv(variables[i]);
	return mkdtemp(root) ? 0 : -1;
}

static int test_teardown(void **state)
{
	(void)state;
	return file_remove_tree(root);
}

/* What is found must be this file; NULL: nothing. */
static void expect(enum cuda_library_kind kind, const char *relative)
{
	struct cuda_library library;
	int rc = cuda_library_search(&library, kind, root);

	if (!relative) {
		assert_int_equal(rc, ERR_UNSUPPORTED);
		assert_null(library.functions);
		assert_non_null(library.why);
	} else {
		check_ok(rc);
		assert_string_equal(library.path, under(relative));
		assert_non_null(library.functions[0]);
	}
	cuda_library_close(&library);
}

/* The reason that a search gives when it finds nothing. */
static void expect_reason(const char *reason)
{
	struct cuda_library library;

	assert_int_equal(cuda_library_search(&library, CUDA_LIBRARY_CUBLASLT, root), ERR_UNSUPPORTED);
	if (!strstr(library.why, reason))
		fail_msg("\"%s\" does not say \"%s\"", library.why, reason);
	assert_non_null(strstr(err_text(), "cuBLASLt"));
	cuda_library_close(&library);
}

/* Places are taken away from the first on; each time the next one is found. */
static void test_order(void **state)
{
	static const char *const files[] = {
	        "/own/libcublasLt.so.13",
	        "/own2/libcublasLt.so.12",
	        "/home cuda/lib64/libcublasLt.so.13",
	        "/home cuda/lib/libcublasLt.so.13",
	        "/cuda path/targets/x86_64-linux/lib/libcublasLt.so.12",
	        "/usr/local/cuda/lib64/libcublasLt.so.13",
	        "/usr/local/cuda-13.0/lib64/libcublasLt.so.13",
	        "/usr/local/cuda-12.8/lib64/libcublasLt.so.12",
	        "/active/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
	        "/conda/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
	        "/tool/lib/python3.10/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
	        "/extra/nvidia/cublas/lib/libcublasLt.so.12",
	        "/me/.local/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12",
	        "/usr/local/lib/python3.12/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
	        "/usr/lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12",
	        "/opt/any/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
	        "/opt/any/.venv/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
	        "/venv/main/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13",
	};
	char *text;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		plant("planted_good.so", files[i]);
	plant_text("#!/bin/sh\nexit 1\n", "/tool/bin/python3");
	check_ok(chmod(under("/tool/bin/python3"), 0755));
	text = mem_printf("%s/nowhere::%s/own:%s/own2", root, root, root);
	setenv("FERRY_LIBRARY_PATH", text, 1);
	mem_free(text);
	text = mem_printf("%s/bin:%s/tool/bin", root, root);
	setenv("PATH", text, 1);
	mem_free(text);
	setenv("CUDA_HOME", under("/home cuda"), 1);
	setenv("CUDA_PATH", under("/cuda path"), 1);
	setenv("VIRTUAL_ENV", under("/active"), 1);
	setenv("CONDA_PREFIX", under("/conda"), 1);
	setenv("PYTHONPATH", under("/extra"), 1);
	setenv("HOME", under("/me"), 1);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char *seen = strstr(files[i], "/tool/") ? mem_printf("/tool/bin/..%s", files[i] + 5)
		                                        : mem_strdup(files[i]);

		expect(CUDA_LIBRARY_CUBLASLT, seen);
		mem_free(seen);
		check_ok(unlink(under(files[i])));
	}
	expect(CUDA_LIBRARY_CUBLASLT, NULL);
}

/* A python3 that is a link, as in /usr/local/bin of many images: its packages lie where it points to. */
static void test_python_is_a_link(void **state)
{
	static const char file[] =
	        "/uv/cpython/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12";
	char *target;

	(void)state;
	plant("planted_good.so", file);
	plant_text("#!/bin/sh\nexit 1\n", "/uv/cpython/bin/python3.12");
	check_ok(chmod(under("/uv/cpython/bin/python3.12"), 0755));
	check_ok(file_make_dir(under("/bin")));
	target = mem_printf("%s/uv/cpython/bin/python3.12", root);
	check_ok(symlink(target, under("/bin/python3")));
	mem_free(target);
	setenv("PATH", under("/bin"), 1);
	expect(CUDA_LIBRARY_CUBLASLT, file);
}

/* What a user names may be the directory of the library, or the environment that it was installed into. */
static void test_named_root(void **state)
{
	static const char file[] =
	        "/mine/.venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12";

	(void)state;
	plant("planted_good.so", file);
	setenv("FERRY_LIBRARY_PATH", under("/mine/.venv"), 1);
	expect(CUDA_LIBRARY_CUBLASLT, file);
	setenv("FERRY_LIBRARY_PATH", under("/mine"), 1);
	expect(CUDA_LIBRARY_CUBLASLT, NULL);
	expect_reason("set FERRY_LIBRARY_PATH to its directory");
}

/* In one directory the toolkit's own major version comes first. */
static void test_major_order(void **state)
{
	(void)state;
	plant("planted_good.so", "/usr/local/cuda/lib64/libcublasLt.so.12");
	plant("planted_good.so", "/usr/local/cuda/lib64/libcublasLt.so.13");
	expect(CUDA_LIBRARY_CUBLASLT, CUDART_VERSION >= 13000 ? "/usr/local/cuda/lib64/libcublasLt.so.13"
	                                                      : "/usr/local/cuda/lib64/libcublasLt.so.12");
}

/* Files that cannot be used are passed over, and named when nothing else is there. */
static void test_refused(void **state)
{
	(void)state;
	setenv("FERRY_LIBRARY_PATH", under("/own"), 1);
	plant_text("not a library at all, but text that is longer than the header of an ELF file would be\n",
	        "/own/libcublasLt.so.13");
	expect_reason("/own/libcublasLt.so.13: ");
	expect_reason("invalid ELF header");
	check_ok(unlink(under("/own/libcublasLt.so.13")));

	plant("planted_lacks.so", "/own/libcublasLt.so.13");
	expect_reason("has no cublasLtMatmul");
	check_ok(unlink(under("/own/libcublasLt.so.13")));

	plant("planted_old.so", "/own/libcublasLt.so.12");
	expect_reason("is version 110300, not 120000 to 139999");

	check_ok(file_make_dir(under("/own/libcublasLt.so.13")));
	expect_reason("/own/libcublasLt.so.13: ");

	plant("planted_good.so", "/usr/local/cuda/lib/libcublasLt.so.13");
	expect(CUDA_LIBRARY_CUBLASLT, "/usr/local/cuda/lib/libcublasLt.so.13");
}

static void test_nccl(void **state)
{
	struct cuda_library library;

	(void)state;
	expect(CUDA_LIBRARY_NCCL, NULL);
	plant("planted_good.so", "/usr/local/cuda/lib64/libnccl.so.2"); /* no function of NCCL's */
	expect(CUDA_LIBRARY_NCCL, NULL);
	plant("planted_nccl.so", "/opt/x/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2");
	check_ok(cuda_library_search(&library, CUDA_LIBRARY_NCCL, root));
	assert_int_equal(library.version, 22809);
	cuda_library_close(&library);
}

/* Directories whose names look like patterns are only names. */
static void test_wildcards(void **state)
{
	(void)state;
	plant("planted_good.so", "/a[b]*/lib64/libcublasLt.so.13");
	setenv("CUDA_HOME", under("/a?b]x"), 1);
	expect(CUDA_LIBRARY_CUBLASLT, NULL);
	setenv("CUDA_HOME", under("/a[b]*"), 1);
	expect(CUDA_LIBRARY_CUBLASLT, "/a[b]*/lib64/libcublasLt.so.13");
}

static void test_out_of_memory(void **state)
{
	int rc = ERR_NOMEM;

	(void)state;
	setenv("FERRY_LIBRARY_PATH", under("/own"), 1);
	plant("planted_lacks.so", "/own/libcublasLt.so.13");
	plant("planted_good.so", "/own/libcublasLt.so.12");
	for (int64_t after = 1; rc == ERR_NOMEM; after++) {
		struct cuda_library library;

		assert_true(after < 100);
		mem_fault_arm(after, MEM_FAULT_ONCE);
		rc = cuda_library_search(&library, CUDA_LIBRARY_CUBLASLT, root);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		cuda_library_close(&library);
	}
	check_ok(rc);
}

/* ---- remembered: in a process of its own each, since it cannot be forgotten ---- */

#define FIELD(function) void *function;
struct functions {
	CUBLASLT_FUNCTIONS(FIELD)
};

static void *bind_thread(void *result)
{
	struct functions f;

	*(int *)result = cuda_library_bind(&f, sizeof(f), CUDA_LIBRARY_CUBLASLT);
	return NULL;
}

static void in_child(void (*run)(void))
{
	pid_t pid = fork();
	int status = -1;

	if (!pid) {
		run();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void bind_from_threads(void)
{
	pthread_t threads[8];
	int results[8];
	struct functions f;
	char *text;

	for (int i = 0; i < 8; i++)
		check_ok(pthread_create(&threads[i], NULL, bind_thread, &results[i]));
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		check_ok(results[i]);
	}
	setenv("FERRY_LIBRARY_PATH", "/nowhere", 1); /* it stays what it was */
	check_ok(cuda_library_bind(&f, sizeof(f), CUDA_LIBRARY_CUBLASLT));
	text = cuda_library_describe(CUDA_LIBRARY_CUBLASLT);
	assert_non_null(strstr(text, "cuBLASLt 13.1.0, "));
	assert_non_null(strstr(text, under("/own/libcublasLt.so.13")));
	mem_free(text);
	assert_int_equal(cuda_library_bind(&f, sizeof(f) - 8, CUDA_LIBRARY_CUBLASLT), ERR_INTERNAL);
}

static void test_bind(void **state)
{
	(void)state;
	plant("planted_good.so", "/own/libcublasLt.so.13");
	setenv("FERRY_LIBRARY_PATH", under("/own"), 1);
	in_child(bind_from_threads);
}

static void describe_nothing(void)
{
	char *text = cuda_library_describe(CUDA_LIBRARY_CUDNN);

	assert_non_null(text);
	assert_non_null(strstr(text, "cuDNN"));
	mem_free(text);
}

static void test_describe(void **state)
{
	(void)state;
	in_child(describe_nothing);
}

/* What cuDNN opens by name while it runs is open already, from the python packages beside it. */
static void test_libraries_of_cudnn(void **state)
{
	(void)state;
	plant("planted_cudnn.so", "/opt/x/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
	plant("planted_nvrtc.so", "/opt/x/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
	assert_null(dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_NOLOAD));
	expect(CUDA_LIBRARY_CUDNN, "/opt/x/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
	assert_non_null(dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_NOLOAD));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_setup_teardown(test_order, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_python_is_a_link, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_named_root, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_major_order, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_refused, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_nccl, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_wildcards, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_out_of_memory, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_bind, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_describe, test_setup, test_teardown),
	        cmocka_unit_test_setup_teardown(test_libraries_of_cudnn, test_setup, test_teardown),
	};
	char self[1024] = "";
	int failed;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	*strrchr(self, '/') = 0;
	built_in = self;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return failed;
}
