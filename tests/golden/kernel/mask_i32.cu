static __device__ __forceinline__ int floor_mod_i32(int a, int b) { int r = b == 0 || b == -1 ? 0 : a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
extern "C" __global__ void __launch_bounds__(256)
fused(const int* __restrict__ in0, const int* __restrict__ in1, int* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 2 + team;
    if (q <= 32) {
        const int p = lane;
        if (p < 65) {
            const int v0 = in0[q * 65 + p];
            const int v1 = in1[p];
            const bool v2 = v0 < v1;
            const int v3 = floor_mod_i32(v0, v1);
            const int v4 = v2 ? v0 : v3;
            out0[q * 65 + p] = v4;
        }
    }
}
