static __device__ __forceinline__ long long max_i64(long long a, long long b) { return a > b ? a : b; }
static __device__ __forceinline__ long long min_i64(long long a, long long b) { return a < b ? a : b; }
extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, const long long* __restrict__ in1, const float* __restrict__ in2, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 2 + team;
    const long long v0 = in1[q];
    const long long v3 = max_i64((min_i64(((v0 < 0L) ? (v0 + 1000L) : v0), 999L)), 0L);
    const int p = lane;
    if (p < 96) {
        const float v4 = in0[p + ((int)v3) * 96];
        const float v5 = in2[(q % 24) * 96 + p];
        const float v6 = v4 + v5;
        out0[q * 96 + p] = v6;
    }
}
